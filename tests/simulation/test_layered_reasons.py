"""Seeded days of gangs with layers of subgroups that run in part: each reason is true, and each number and each place
of it that is changed is found."""

import os
import re

import pytest

from tests.simulation.layered_day import LayeredDay
from tests.simulation.reason_checker import assert_reasons_true

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "4"))
FORMS = (
    "where the rest of the gang is",
    "where the rest of the subgroup is",
    "where the rest of the group is",
    "the rest of the gang is in ",
    " groups of ",
    "each group in one rack, each group in one block",
    "one group of subgroups needs",
    "one subgroup needs",
    "excluding capacity reserved for",
    "can never start: even if empty, no rack",
)


class ChangedReasons(LayeredDay):
    """Once for each form of a reason: changes each of its numbers by one and each of its places, and lists what the
    checker does not find. Requested GPUs, and the time and the place of a reservation, are not counted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.forms: set[str] = set()
        self.missed: list[str] = []
        self.tried = 0

    def after_cycle(self) -> None:
        for gang in self.cluster.state.pending.waiting.values():
            true = gang.attempt.reason
            form = re.sub(r"\d+", "0", true)
            if not true or form in self.forms:
                continue
            self.forms.add(form)
            for changed in changes(true):
                gang.attempt.reason = changed
                self.tried += 1
                try:
                    assert_reasons_true(self.cluster)
                except AssertionError:
                    continue
                self.missed.append(f"{changed}\n  instead of {true}")
            gang.attempt.reason = true


def changes(true: str) -> list[str]:
    counted = re.sub(r"; reserved: .*|preempted by .*", lambda match: "#" * len(match[0]), true)
    found = []
    two_kinds = re.match(
        r"needs (\d+) pods? x \d+ GPUs? and \1 pods? x", true
    )  # either may be meant
    for match in re.finditer(r"(?<![\w/-])\d+(?= |$|\))(?! GPUs?[;,]| GPUs? (?:and|in))", counted):
        before = counted[: match.start()]
        if not before.endswith(" x ") and not (two_kinds and before.endswith(" fits ")):
            found += [
                true[: match.start()] + str(number) + true[match.end() :]
                for number in (int(match[0]) + 1, int(match[0]) - 1)
            ]
    for match in re.finditer(r"(rack r|block b|node n)(\d)(?=, where|, which)", counted):
        other = (int(match[2]) + 1) % 2
        found.append(f"{true[: match.start()]}{match[1]}{other}{true[match.end() :]}")
    for match in re.finditer(r"the rest of the (gang|subgroup|group)", counted):
        other_unit = "gang" if match[1] != "gang" else "subgroup"
        found.append(f"{true[: match.start(1)]}{other_unit}{true[match.end(1) :]}")
    for match in re.finditer(r"(?<=in one )(rack|block)", counted):
        found.append(true[: match.start()] + "island" + true[match.end() :])
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed > 1 else ()) for seed in range(DAYS)]
)
def test_reasons_of_gangs_that_run_in_part(seed: int) -> None:
    LayeredDay(seed).run()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(100, 106))
def test_what_is_changed_in_a_reason_is_found(seed: int) -> None:
    day = ChangedReasons(seed)
    day.run()
    assert day.tried > 50
    assert day.missed == []


@pytest.mark.nightly  # about the days alone
def test_the_days_have_reasons_of_all_forms() -> None:
    days = [LayeredDay(seed) for seed in range(100, 106)]
    for day in days:
        day.run()
    said = "\n".join(reason for day in days for reason in day.said)
    assert [form for form in FORMS if form not in said] == []
