"""Texts of strangers in what people read. Pure."""


def printable(text: str) -> str:
    """The text, with escapes such as \\x1b or \\n for what a terminal or a log would obey instead of showing: control
    characters, line breaks, marks that change the direction of writing, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def brief(text: str, most: int) -> str:
    """The text, printable and no longer than so many characters; what is cut off ends with dots."""
    short = printable(text if len(text) <= most else text[: most + 1])
    return short if len(short) <= most else f"{short[: most - 3]}..."
