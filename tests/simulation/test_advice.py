"""In random situations a gang starts, at once or step by step, when the advice of its reason is taken: no reason
conceals a cause that holds at the same time.

A reason that says that the gang can never start, or that its queue does not let it, precedes any other. All others must
be enough for one more pod of the gang."""

import os
import re

import pytest

from tests.simulation import advice

SITUATIONS = int(os.environ.get("LOCKSTEP_SITUATIONS", "500"))
FIRST = int(os.environ.get("LOCKSTEP_FIRST_SITUATION", "0"))
STEPS_MOST = 8
FORMS = (
    "GPUs free on",
    "GPUs free and lack",
    "also lack",
    "cordoned, ",
    "in no rack",
    "anti-affinity of existing pods",
    "fit together under",
    "even if empty",
    "all that one pod requests",
    "of its capability",
)


def fitting(reason: str) -> int:
    found = re.search(r" fits (\d+) of|; (\d+) of \d+ fit together", reason)
    return int(found[1] or found[2]) if found else -1


def reasons(seed: int) -> list[str]:
    """One for each step, until the gang starts."""
    situation, said = advice.drawn(seed), list[str]()
    while reason := situation.decide():
        if said:
            first = "can never start" in said[-1] or said[-1].startswith("queue ")
            helped = reason != said[-1] if first else fitting(reason) > fitting(said[-1])
            assert helped, "\n".join([*said, reason])
        said.append(reason)
        assert len(said) <= STEPS_MOST, "\n".join(said)
        situation = advice.take(situation, reason)
    return said


@pytest.mark.parametrize("part", range(5))
def test_a_gang_starts_when_the_advice_of_its_reason_is_taken(part: int) -> None:
    count = SITUATIONS // 5
    said = [reasons(FIRST + part * count + number) for number in range(count)]
    assert sum(map(bool, said)) > count / 2, "most are pending"


def test_the_situations_have_reasons_of_many_forms() -> None:
    said = " ".join(advice.drawn(seed).decide() for seed in range(300))
    assert [form for form in FORMS if form not in said] == []


def test_a_reason_that_conceals_a_cause_is_found() -> None:
    """Of each form of a detail, one is left out."""
    found = set[str]()
    for seed in range(400):
        situation = advice.drawn(seed)
        reason = situation.decide()
        details = re.search(r"fits 0 of \d+ \(([^()]*)\)", reason)
        if details is None or "never" in reason:
            continue
        for each in details[1].split("; "):
            left = reason.replace(each, "")
            if fitting(advice.take(situation, left).decide()) == 0:
                found.add(re.sub(r"\d+ |\W.*", "", each.replace("GPUs free on", "free ")))
    assert len(found) >= 2, found
