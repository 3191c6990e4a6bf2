"""Texts of strangers in what people read. Pure."""


def printable(text: str) -> str:
    """The text, with escapes such as \\x1b or \\n for what a terminal or a log would obey instead of showing: control
    characters, line breaks, marks that change the direction of writing, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
