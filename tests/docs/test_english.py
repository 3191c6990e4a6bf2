"""Pages are in plain English: a noun as the subject, and mechanical verbs for mechanics.

So are help texts, descriptions of custom resources, metrics and Events, from which pages are made. Sentences in code
spans are left out.
"""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCUMENTS, ROOT, text

PATTERNS = {
    r"\bnobody\b": "negate the verb: no gang, no pod, no user ...",
    r"\bwho(m|se)?ever\b": "name the subject",
    r"\b(gives?|gave|giving) way\b": "is evicted, is suspended, ends",
    r"\bspeaks? against\b": "counts against",
    r"\b(comes?|came|coming) back\b": "returns, is recreated",
    r"\bowe[sd]?\b": "must receive, must pay",
    r"(?:^|[.:;] |\| )(?:What|Who) (?!is\b|are\b)[a-z' ]+ (?:is|are|has|was|goes|stays) ": "a clause is no subject",
}
QUOTES = {
    "why-is-my-job-pending.md",
    "pending-reasons.md",
}  # of reasons, as the scheduler words them


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_english(page: Path) -> None:
    prose = re.sub(r"\s+", " ", text(page))
    found = [
        f"{match[0]!r}: {advice}"
        for pattern, advice in PATTERNS.items()
        for match in re.finditer(pattern, prose)
        if page.name not in QUOTES or pattern.startswith("(?:")
    ]
    assert found == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Then nobody waits.",
        "Equals give way.",
        "It is owed two stays.",
        "What was received holds. What a queue deserves is kept here.",
    ],
)
def test_other_sentences_are_found(sentence: str) -> None:
    assert any(re.search(pattern, sentence) for pattern in PATTERNS)
