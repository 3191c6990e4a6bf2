"""The documents, and the links between them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def text(document: Path) -> str:
    """Without code."""
    fenced = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$", re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", "`", fenced.sub("", document.read_text()))


def links(document: Path) -> Iterator[str]:
    """Those that lead to other files or to headings; not those to the web."""
    for target in re.findall(r"\]\(\s*([^)\s]+)\s*\)", text(document)):
        if not re.match(r"[a-z]+:", target):
            yield target


@cache
def anchors(document: Path) -> frozenset[str]:
    """Of its headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return frozenset(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", each)) for each in plain)


def tables(document: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields each run of lines that begin with a bar, outside of code: the number of its first line, then the line
    above the run ("" if blank) and the run."""
    code, above, start, rows = False, "", 0, list[str]()
    for number, line in enumerate([*document.read_text().splitlines(), ""], 1):
        code ^= line.lstrip().startswith("```")
        if line.lstrip().startswith("|") and not code:
            if not rows:
                start, rows = number, [above.strip()]
            rows.append(line.strip())
        elif rows:
            yield start, rows
            rows = []
        above = line


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1
