"""Text for a terminal, folded so that names and keys stay whole where they can be. Pure."""

import re

_AFTER_COMMAS = re.compile(r"[^,]*,+|[^,]+")
_AFTER_SLASHES = re.compile(r"[^/=]*[/=]+|[^/=]+")


def fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters (1 or more), without the white space at which they end. A word that is longer
    than a line is broken after a comma, else after a slash or an equals sign, else anywhere."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        gap = " " if line else ""
        for piece in pieces(word, width):
            if len(line) + len(gap) + len(piece) > width:
                lines.append(line)
                line = piece
            else:
                line += gap + piece
            gap = ""
    lines.append(line)
    return lines


def hung(line: str, width: int) -> str:
    """The line with its own indentation; what is folded off it stands two columns further to the right."""
    if len(line) <= width:
        return line
    indent = len(line) - len(line.lstrip())
    first, *rest = fold(line, max(width - indent - 2, 1))
    pad = " " * indent
    return "\n".join([pad + first, *(f"{pad}  {each}" for each in rest)])


def pieces(word: str, width: int) -> list[str]:
    """Splits the word into pieces of at most `width` characters."""
    if len(word) <= width:
        return [word]
    found: list[str] = []
    for part in _AFTER_COMMAS.findall(word):
        for piece in [part] if len(part) <= width else _AFTER_SLASHES.findall(part):
            found += [piece[at : at + width] for at in range(0, len(piece), width)]
    return found
