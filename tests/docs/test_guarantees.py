"""The page of guarantees names tests that exist."""

import re
from pathlib import Path

import pytest

from tests.e2e import promises

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/results/guarantees.md").read_text()
SOURCES = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", PAGE))))
def test_the_test_exists(name: str) -> None:
    assert f"def {name}(" in SOURCES


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))))
def test_the_file_has_tests(path: str) -> None:
    assert re.search(r"^(async )?def test_", (ROOT / path).read_text(), re.MULTILINE)


def test_each_promise_on_a_real_kubernetes_has_one_end_to_end_test() -> None:
    """About sixty, since make test has twenty minutes."""
    names = promises.names()
    assert promises.PAGE.read_text().count("\n| ") == len(names) + 1, (
        "a row names no test, or several"
    )
    files = "\n".join(file.read_text() for file in (ROOT / "tests/e2e").glob("test_*.py"))
    defined = re.findall(r"^def (test_\w+)\(", files, re.MULTILINE)
    assert [name for name in names if defined.count(name) != 1] == []
    assert len(set(names)) == len(names)
    assert 55 <= len(names) <= 70


def test_every_row_names_a_test() -> None:
    """In the tables whose second column is for tests."""
    rows = re.findall(r"^\| guarantee \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    lines = [line for found in rows for line in found.splitlines()]
    assert len(lines) > 40
    assert [line for line in lines if not re.search(r"`(test_\w+|tests/[\w/]+\.py)`", line)] == []
