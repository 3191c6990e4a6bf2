"""Tables of the documents are rendered as tables."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCUMENTS, ROOT, cells, tables


def faults(document: Path) -> list[str]:
    found = []
    for line, (above, *rows) in tables(document):
        if above:
            found.append(f"line {line}: put a blank line above the table")
        if len(rows) < 2 or not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", rows[1]):
            found.append(
                f"line {line}: rows without a header (a blank line inside a table ends it)"
            )
        found += [
            f"line {line + at}: {cells(row)} cells, and the header has {cells(rows[0])}"
            for at, row in enumerate(rows)
            if cells(row) != cells(rows[0])
        ]
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables(document: Path) -> None:
    assert faults(document) == []


GOOD = "text\n\n| a | b |\n|---|---|\n| 1 | `x\\|y` |\n\ntext\n"


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (GOOD.replace("|---|---|\n", "|---|---|\n\n"), "rows without a header"),
        (GOOD.replace("|---|---|\n", ""), "rows without a header"),
        (GOOD.replace("text\n\n", "text\n", 1), "blank line above"),
        (GOOD.replace("| 1 |", "| 1 | 2 |"), "3 cells"),
        (GOOD.replace("\\|", "|"), "3 cells"),
        (GOOD.replace("|---|---|", "|---|"), "1 cells"),
    ],
)
def test_a_broken_table_is_found(broken: str, fault: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(GOOD)
    assert faults(page) == []
    page.write_text(broken)
    assert any(fault in each for each in faults(page))
    page.write_text(f"```\n{broken}\n```\n")
    assert faults(page) == []
