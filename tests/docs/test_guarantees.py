"""The page of guarantees names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/results/guarantees.md").read_text()
SOURCES = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", PAGE))))
def test_the_test_exists(name: str) -> None:
    assert f"def {name}(" in SOURCES


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))))
def test_the_file_has_tests(path: str) -> None:
    assert re.search(r"^(async )?def test_", (ROOT / path).read_text(), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    """In the tables whose second column is for tests."""
    rows = re.findall(r"^\| guarantee \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    lines = [line for found in rows for line in found.splitlines()]
    assert len(lines) > 40
    assert [line for line in lines if not re.search(r"`(test_\w+|tests/[\w/]+\.py)`", line)] == []
