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
