"""Texts of strangers in what people read. Pure."""

LINES, LINE = 5, 700


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


def error_lines(text: str) -> str:
    """An error for a terminal: the first LINES lines, each printable and of at most LINE characters. Parsers' errors
    have several lines."""
    return "\n".join(brief(line, LINE) for line in text.split("\n")[:LINES])
