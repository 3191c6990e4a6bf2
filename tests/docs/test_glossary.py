"""The glossary: one entry for each term, in order, and no term that is used no longer."""

import re
from functools import cache

import pytest

from tests.docs.pages import DOCS, DOCUMENTS, ROOT

PAGE = DOCS / "concepts/glossary.md"
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*(?: \((.+?)\))?: (.+)$", PAGE.read_text(), re.MULTILINE)
TERMS = [term for term, _, _ in ENTRIES]


@cache
def used() -> str:
    """The words of code and pages, without the glossary."""
    files = [
        file for folder in ("agent", "central", "protos") for file in (ROOT / folder).rglob("*.py")
    ]
    files += [page for page in DOCUMENTS if page != PAGE]
    words = " ".join(file.read_text() for file in files).replace("_", " ")
    return re.sub(r"\s+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words)).lower()


def test_every_line_is_an_entry() -> None:
    lines = re.findall(r"^- ", PAGE.read_text(), re.MULTILINE)
    assert len(ENTRIES) == len(lines) >= 120


def test_each_term_has_one_entry() -> None:
    short = [each for _, aside, _ in ENTRIES for each in re.findall(r"short: (.+)", aside)]
    names = sorted(name.lower() for term in TERMS for name in term.split(", ")) + short
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_terms_are_in_alphabetical_order() -> None:
    assert sorted(TERMS, key=str.lower) == TERMS


@cache
def vocabulary() -> str:
    return " " + " ".join(sorted(set(re.findall(r"[a-z]+", used()))))


@pytest.mark.parametrize("term", sorted({name for term in TERMS for name in term.split(", ")}))
def test_the_term_is_in_use(term: str) -> None:
    words = [re.sub(r"(tion|e|y|s)$", "", word) for word in term.lower().split()]
    if len(words) == 1:
        found = f" {words[0]}" in vocabulary()
    else:
        phrase = r"[\w-]* (?:\w+ ){0,2}".join(map(re.escape, words))
        found = re.search(r"\b" + phrase, used()) is not None
    assert found, "remove the entry, or use the term"
