"""The page of pending reasons and the scheduler agree: what gangs read in the scenarios is on the page, and the
words on the page are the scheduler's."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "reference/pending-reasons.md"
CLAUSES = re.findall(r"^\| `(.+?)` \|", PAGE.read_text(), re.MULTILINE)
SCENARIOS = sorted((ROOT / "tests/scenarios").glob("*.txt"))


def fixed(clause: str) -> list[str]:
    return re.split(r"\{[^}]*\}", clause)


@cache
def words() -> str:
    """All strings of the scheduler, and those that its tests expect."""
    trees = [
        ast.parse(file.read_text())
        for folder in ("central", "tests/central")
        for file in (ROOT / folder).rglob("*.py")
    ]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return "\n".join(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize("clause", CLAUSES)
def test_words_are_the_schedulers(clause: str) -> None:
    missing = [part for part in fixed(clause) if part.strip(" ():;,") not in words()]
    assert missing == [], "the scheduler uses other words now"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_what_pending_gangs_read_is_on_the_page(scenario: Path) -> None:
    clause = "|".join(".+?".join(map(re.escape, fixed(clause))) for clause in CLAUSES)
    for reason in re.findall(r"^wait \S+: (.*)$", scenario.read_text(), re.MULTILINE):
        assert re.fullmatch(rf"(?:(?:{clause})(?:; |$))+", reason), reason
