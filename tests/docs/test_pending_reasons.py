"""The page of pending reasons and the scheduler agree both ways: every sentence in the modules that build reasons
is on the page, what gangs read in the scenarios is on the page, and the program can say what is on the page.

Both are compared as the fixed text between what is filled in."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from central.model.pending_causes import CAUSES, UNSCHEDULABLE
from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "reference/pending-reasons.md"
ABOVE, TABLE, BELOW = re.split(
    r"(?<=## What autoscalers read\n)|(?=## The gang is not complete\n)", PAGE.read_text()
)
CLAUSES = re.findall(r"^\| ?`(.+?)` ?\|", ABOVE + BELOW, re.MULTILINE)
SCENARIOS = sorted((ROOT / "tests/scenarios").glob("*.txt"))
REASONS = (
    *("filters", "placement", "queues", "reservation", "volumes", "refusal_remarks.py"),
    *(
        "preemption/reclaim.py",
        "preemption/protected_work.py",
        "state/readiness.py",
        "state/subgroups.py",
    ),
    "status/gang_status.py",
)  # below central/scheduler
NOT_REASONS = {
    # Reasons of evictions, which Events and `lockstep explain` give:
    *("rescheduled to make room for", "it fits on other nodes"),
    *("reclaimed for", "is below its fair share", "is below what it deserves"),
    "has a higher strictPriority",
    *("above the minimum of its task", "lacks a member that it needs"),
    *(
        "admitted: pods may be created",
        "pods succeeded",
        "its pod succeeded",
    ),  # of gangs that do not wait
    *("nodes of", "less than a minute"),  # values: {where}, {time}
    # What is raised and not shown:
    *("not all pods fit together", "not enough capacity", "has enough capacity"),
}
HOLE = re.compile(r"\{[^}]*\}")


def test_the_table_of_causes_is_the_programs() -> None:
    rows = re.findall(r"^\| `(\S+)` \| `?(\w+)`? \| (yes|no) \|", TABLE, re.MULTILINE)
    said = {cause: reason or "none" for cause, reason in CAUSES.items()}
    assert {cause: reason for cause, reason, _ in rows} == said
    assert {cause for cause, _, nodes in rows if nodes == "yes"} == {
        cause for cause, reason in CAUSES.items() if reason == UNSCHEDULABLE
    }


def fixed(clause: str) -> list[str]:
    return HOLE.split(clause)


def pieces(file: Path) -> Iterator[str]:
    """The fixed text of each string, in order, without docstrings and assertions."""
    tree = ast.parse(file.read_text())
    nodes = list(ast.walk(tree))
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Assert):
            skipped |= set(map(id, ast.walk(node)))
    for node in nodes:
        if id(node) in skipped or not isinstance(node, ast.Constant):
            continue
        if isinstance(node.value, str):
            yield from fixed(node.value)


def reason_pieces() -> set[str]:
    """Those of two words and more that the modules of reasons contain."""
    folder = ROOT / "central/scheduler"
    files = [
        file
        for name in REASONS
        for file in ([folder / name] if name.endswith(".py") else (folder / name).rglob("*.py"))
    ]
    found = {bare(piece) for file in files for piece in pieces(file)}
    return {piece for piece in found if " " in piece}


@cache
def program() -> tuple[str, ...]:
    folders = ("central/scheduler", "central/controllers", "central/model")
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return tuple({bare(piece) for file in files for piece in pieces(file)})


def bare(text: str) -> str:
    return text.strip(" ():;,.?")


def can_be_made(text: str) -> bool:
    """Whether the text stands in one piece, or is the end of a piece and others that follow it."""
    if not (text := bare(text)) or any(text in piece for piece in program()):
        return True
    cuts = (index for index, letter in enumerate(text) if letter == " ")
    return any(_ends_a_piece(bare(text[:cut])) and can_be_made(text[cut:]) for cut in cuts)


def _ends_a_piece(text: str) -> bool:
    return any(f" {piece}".endswith(f" {text}") for piece in program())


def test_every_sentence_of_the_scheduler_is_on_the_page() -> None:
    page = HOLE.sub("{}", "\n".join(re.findall(r"`([^`\n]+)`", PAGE.read_text())))
    said = reason_pieces()
    assert len(said) > 80
    assert said >= NOT_REASONS, "the exceptions are still said"
    assert sorted(piece for piece in said - NOT_REASONS if piece not in page) == []


@pytest.mark.parametrize("clause", CLAUSES)
def test_every_sentence_on_the_page_can_be_said(clause: str) -> None:
    missing = [part for part in fixed(clause) if not can_be_made(part)]
    assert missing == [], "the scheduler uses other words now"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_what_pending_gangs_read_is_on_the_page(scenario: Path) -> None:
    clause = "|".join(".+?".join(map(re.escape, fixed(clause))) for clause in CLAUSES)
    for reason in re.findall(r"^wait \S+: (.*)$", scenario.read_text(), re.MULTILINE):
        assert re.fullmatch(rf"(?:(?:{clause})(?:; |$))+", reason), reason
