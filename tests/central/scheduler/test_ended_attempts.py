"""A placement that others end changes nothing, and is found as it would have been without them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import le

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, SubGroups
from central.model.pod_rules import Rules
from central.scheduler import work_meter
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import packing
from central.scheduler.placement.subgroup_search import ATTEMPTS
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import FIRST_LIMIT, LONG_FACTOR
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.state_copy import fingerprint

NOW = 1000.0
NODES, RACK_SIZE, BLOCK_SIZE = 32, 4, 16

RULES = {
    "apart": factories.apart("big", RACK),
    "near": factories.near("big", BLOCK),
    "spread by rack": factories.even("big", RACK),
    "spread by block and rack": Rules(
        spread=(*factories.even("big", BLOCK).spread, *factories.even("big", RACK, 2).spread)
    ),
    "spread by rack, one for each node": replace(
        factories.even("big", RACK), apart=factories.apart("big", factories.HOST).apart
    ),
}
IN_SUBGROUPS = {"spread by node": factories.even("big", factories.HOST)}


def cluster(dice: random.Random, limit: int) -> Scheduler:
    """Nodes that are partly used."""
    made = new_scheduler(factories.LEVELS)
    made.state.snapshot.meter.first_limit = limit
    facts: list[Fact] = []
    for number in range(NODES):
        name = f"n{number:02}"
        rack, block = f"r{number // RACK_SIZE}", f"b{number // BLOCK_SIZE}"
        facts += [
            factories.node(name, rack=rack, block=block),
            factories.report(name, factories.topology(8)),
        ]
        if used := dice.randrange(7):
            facts.append(factories.pod(f"old-{number}", used, node=name, phase="Running"))
    schedule_once(made, facts, NOW)
    return made


def gang(dice: random.Random, rules: Rules | None, subgroups: int = 0) -> list[Fact]:
    """Pods of one or two classes, in equal rings or none."""
    size = 6 if subgroups else dice.randrange(4, 9)
    classes = dice.choice(((1,), (2,), (1, 3)))
    facts: list[Fact] = []
    for rank in range(size):
        ring = ("ring", str(rank // max(subgroups, 1)))
        gpus = classes[rank % len(classes)]
        labels = (("app", "big"), ring)
        facts.append(factories.pod(f"big-{rank}", gpus, "big", rules=rules, labels=labels))
    policies = (SubGroups("ring", subgroups, 1, keys=("ring",), required=RACK),)
    own = {"subgroups": policies} if subgroups else {}
    return [factories.gang("big", size, **own), *facts]


def of_gang(decisions: Sequence[Decision]) -> dict[str, tuple[str, int]]:
    binds = [each for each in decisions if isinstance(each, Bind) and each.name.startswith("big")]
    return {each.name: (each.node, each.gpus) for each in binds}


def big(made: Scheduler) -> Gang:
    (found,) = (each for each in made.state.gangs.values() if each.name == "big")
    return found


def start_long(made: Scheduler, facts: list[Fact]) -> None:
    """The next attempt is a long one."""
    made.state.snapshot.meter.first_limit = 1
    schedule_once(made, facts, NOW)
    big(made).attempt.work_factor = LONG_FACTOR
    made.state.snapshot.meter.first_limit = FIRST_LIMIT


def rings(dice: random.Random) -> list[Fact]:
    """Unlike subgroups: the search takes subgroups back that leave no place for others."""
    required, facts = dice.choice((RACK, "node")), list[Fact]()
    for ring in range(dice.randrange(4, 7)):
        for rank in range(3):
            name = f"big-{3 * ring + rank}"
            gpus = dice.choice((1, 2, 3)) + 2 * (required == RACK)
            facts.append(factories.pod(name, gpus, "big", labels=(("ring", str(ring)),)))
    policy = SubGroups("ring", 3, len(facts) // 3, keys=("ring",), required=required)
    return [factories.gang("big", len(facts), subgroups=(policy,)), *facts]


def unlike(dice: random.Random, placement: str = "") -> list[Fact]:
    """Pods of many classes, by GPUs and by CPU: so many that they are not moved together, which ends with what it
    has."""
    size = dice.randrange(packing.CLASSES + 2, packing.CLASSES + 12)
    pods = [factories.pod(f"big-{rank}", 1, "big", cpu=100 + rank) for rank in range(size)]
    return [factories.gang("big", size, placement=placement), *pods]


CASES: dict[str, Callable[[random.Random], list[Fact]]] = {
    **{name: partial(gang, rules=rules) for name, rules in RULES.items()},
    **{name: partial(gang, rules=rules, subgroups=3) for name, rules in IN_SUBGROUPS.items()},
    "unlike subgroups": rings,
    "many classes": unlike,
}


@pytest.mark.long
@pytest.mark.parametrize("facts_of", CASES.values(), ids=CASES)
def test_an_attempt_that_others_end_changes_nothing_and_finds_the_same_later(
    monkeypatch: pytest.MonkeyPatch, facts_of: Callable[[random.Random], list[Fact]]
) -> None:
    """In each cycle a newcomer is bound, and the attempt is ended the sooner the more cycles there were."""
    monkeypatch.setattr(work_meter, "ASK_UNITS", 1)
    ended = 0
    for seed in range(3):
        facts = facts_of(random.Random(seed))
        uncut = cluster(random.Random(seed), FIRST_LIMIT * 100)
        expected = of_gang(schedule_once(uncut, facts, NOW))
        made = cluster(random.Random(seed), FIRST_LIMIT)
        start_long(made, facts)
        now = NOW + 2.0
        for number in range(6):
            before = fingerprint(made)
            newcomer = factories.pod(f"new-{number}", 0, created=now, labels=(("app", "other"),))
            longest = uncut.state.snapshot.meter.longest >> number
            big(made).attempt.undisturbed = 0
            decided = schedule_once(made, [newcomer], now, lambda: False, partial(le, longest - 1))
            assert newcomer.name in {each.name for each in decided if isinstance(each, Bind)}
            if of_gang(decided):
                break
            assert fingerprint(made)[1:] == before[1:]
            ended += big(made).attempt.undisturbed > 0
            big(made).attempt.retry_at = 0.0
            made.state.pending.try_all_again()
            now += 0.1
        found = of_gang(decided)
        for _ in range(4):
            found = found or of_gang(schedule_once(made, [], (now := now + 100.0)))
        assert found == expected, f"seed {seed}"
        check_invariants(made)
    assert ended >= 3


@pytest.mark.long
def test_more_subgroups_than_attempts_are_placed() -> None:
    """Two kinds in turn, each subgroup on a node of its own."""
    size = ATTEMPTS + 200
    made = new_scheduler(factories.LEVELS)
    made.state.snapshot.meter.first_limit = FIRST_LIMIT * 100
    facts: list[Fact] = [factories.node(f"n{number:03}") for number in range(size)]
    for rank in range(size):
        labels = (("ring", str(rank)),)
        facts.append(factories.pod(f"big-{rank}", 8, "big", cpu=100 + rank % 2, labels=labels))
    policy = SubGroups("ring", 1, size, keys=("ring",), required="node")
    facts.append(factories.gang("big", size, subgroups=(policy,)))
    assert len(of_gang(schedule_once(made, facts, NOW))) == size
