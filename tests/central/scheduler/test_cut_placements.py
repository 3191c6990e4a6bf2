"""A placement one pod at a time that is cut goes on in the next cycle, and ends as an uncut one."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, SubGroups
from central.model.pod_rules import Rules
from central.scheduler import work_meter
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from central.scheduler.placement import packing
from central.scheduler.placement.subgroup_search import ATTEMPTS
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import FIRST_LIMIT, MAX_FACTOR, MAX_SLICES
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.state_copy import fingerprint

NOW = 1000.0
NODES, RACK_SIZE, BLOCK_SIZE = 32, 4, 16
LIMIT = 40  # units of a first attempt: a long one takes several slices
CROWD_LIMIT = 150  # the same, for more pods
RINGS_LIMIT = 100_000  # ended when it may go on, as the loop does it
SUBGROUP_LIMIT = 250  # the same; subgroups are tried again in each slice

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


def start_long(made: Scheduler, facts: list[Fact], limit: int) -> None:
    """The next attempt is a long one."""
    made.state.snapshot.meter.first_limit = 1
    schedule_once(made, facts, NOW)
    big(made).attempt.work_factor = 2 * MAX_FACTOR
    made.state.snapshot.meter.first_limit = limit


def one_slice(made: Scheduler, now: float, facts: Sequence[Fact] = ()) -> Sequence[Decision]:
    """A cycle that ends a long attempt as soon as it may go on in another one."""
    meter = made.state.snapshot.meter
    return schedule_once(made, facts, now, lambda: False, lambda _: meter.keeps_progress)


def sliced(made: Scheduler, facts: list[Fact], limit: int) -> tuple[dict[str, object], int]:
    """What the gang gets in long attempts, and the most slices of one. In each cycle a newcomer is bound."""
    start_long(made, facts, limit)
    now, slices = NOW + 2.0, 0
    for number in range(100):
        before = fingerprint(made)
        newcomer = factories.pod(f"new-{number}", 0, created=now, labels=(("app", "other"),))
        decided = one_slice(made, now, [newcomer])
        assert newcomer.name in {each.name for each in decided if isinstance(each, Bind)}
        if found := of_gang(decided):
            return dict(found), slices
        assert fingerprint(made)[1:] == before[1:]
        if (progress := big(made).attempt.progress) is not None:
            slices = max(slices, progress.slices)
            assert made.state.pending.round is not None  # the next cycle follows at once
        now += 0.1
    raise AssertionError(big(made).attempt.reason)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rules", "subgroups"),
    [*((rules, 0) for rules in RULES.values()), *((rules, 3) for rules in IN_SUBGROUPS.values())],
    ids=[*RULES, *IN_SUBGROUPS],
)
def test_slices_place_as_an_uncut_attempt(rules: Rules, subgroups: int) -> None:
    cut = 0
    for seed in range(6):
        facts = gang(random.Random(seed), rules, subgroups)
        uncut = cluster(random.Random(seed), FIRST_LIMIT * 100)
        expected = of_gang(schedule_once(uncut, facts, NOW))
        assert expected
        made = cluster(random.Random(seed), FIRST_LIMIT)
        found, slices = sliced(made, facts, SUBGROUP_LIMIT if subgroups else LIMIT)
        assert found == expected, f"seed {seed}"
        assert slices < MAX_SLICES
        check_invariants(made)
        cut = max(cut, slices)
    assert cut >= 2


def cycles_to_bind(made: Scheduler) -> int:
    """Of the gang, if nothing else happens."""
    for number in range(1, 100):
        if of_gang(schedule_once(made, [], NOW + 2.0 + number / 10, lambda: False)):
            return number
    raise AssertionError(big(made).attempt.reason)


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 1])
def test_a_node_that_was_chosen_and_is_taken_is_not_believed_to_be_free(left: int) -> None:
    """Before the last slice another pod takes the node where two of the gang were to go, or all but one GPU. The gang
    gets what it gets where that pod was there before, and at once: a choice that is out of date would refuse it."""
    compared = 0
    for seed in range(12):
        facts = [factories.gang("big", 24), *crowd()]
        plain = cluster(random.Random(seed), FIRST_LIMIT)
        start_long(plain, facts, CROWD_LIMIT)
        if (cycles := cycles_to_bind(plain)) < 4:
            continue
        nodes = Counter(pod.node for pod in big(plain).members.values())
        name, pods = nodes.most_common(1)[0]
        if pods < 2:
            continue
        made = cluster(random.Random(seed), FIRST_LIMIT)
        start_long(made, facts, CROWD_LIMIT)
        for number in range(1, cycles):
            schedule_once(made, [], NOW + 2.0 + number / 10, lambda: False)
        free = int(made.state.snapshot.columns.gpus.count[made.state.snapshot.columns.row[name]])
        other = factories.pod("other", free - left, node=name, phase="Running")
        uncut = cluster(random.Random(seed), FIRST_LIMIT * 100)
        schedule_once(uncut, [other], NOW)
        expected = of_gang(schedule_once(uncut, facts, NOW))
        found = of_gang(schedule_once(made, [other], NOW + 5.0, lambda: False))
        for number in range(1, 2 * cycles):
            now = NOW + 5.0 + number / 100
            found = found or of_gang(schedule_once(made, [], now, lambda: False))
        assert found == expected
        check_invariants(made)
        compared += 1
    assert compared >= 2


def crowd() -> list[Fact]:
    """Pods of one GPU, of which several fit on a node of each rack."""
    labels = (("app", "big"),)
    rules = RULES["spread by rack"]
    return [factories.pod(f"big-{n}", 1, "big", rules=rules, labels=labels) for n in range(24)]


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
    """Pods of many classes, by GPUs and by CPU: so many that they are not moved together, which ends with what it has."""
    size = dice.randrange(packing.CLASSES + 2, packing.CLASSES + 12)
    pods = [factories.pod(f"big-{rank}", 1, "big", cpu=100 + rank) for rank in range(size)]
    return [factories.gang("big", size, placement=placement), *pods]


@pytest.mark.long
@pytest.mark.parametrize(
    ("facts_of", "seeds", "at_least_placed", "at_least_slices"),
    [(rings, 9, 4, 2), (unlike, 6, 3, 3)],
    ids=["unlike subgroups", "many classes"],
)
def test_slices_place_unlike_pods_as_an_uncut_attempt(
    monkeypatch: pytest.MonkeyPatch,
    facts_of: Callable[[random.Random], list[Fact]],
    seeds: int,
    at_least_placed: int,
    at_least_slices: int,
) -> None:
    monkeypatch.setattr(work_meter, "ASK_UNITS", 300)
    cut = placed = 0
    for seed in range(seeds):
        facts = facts_of(random.Random(seed))
        uncut = cluster(random.Random(seed), FIRST_LIMIT * 100)
        expected = of_gang(schedule_once(uncut, facts, NOW))
        if not expected:
            continue
        made = cluster(random.Random(seed), FIRST_LIMIT)
        found, slices = sliced(made, facts, RINGS_LIMIT)
        assert found == expected, f"seed {seed}"
        check_invariants(made)
        cut, placed = max(cut, slices), placed + 1
    assert placed >= at_least_placed
    assert cut >= at_least_slices


@pytest.mark.long
def test_slices_place_many_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves and swaps of roles end with what they have, so not always as an uncut attempt places them."""
    monkeypatch.setattr(work_meter, "ASK_UNITS", 300)
    made = cluster(random.Random(1), FIRST_LIMIT)
    found, slices = sliced(made, unlike(random.Random(1), placement="spread"), RINGS_LIMIT)
    assert len(found) == len(big(made).members)
    assert slices >= 3
    check_invariants(made)


@pytest.mark.long
def test_what_many_classes_found_is_out_of_date_when_others_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod takes all GPUs of the emptiest node between two slices."""
    monkeypatch.setattr(work_meter, "ASK_UNITS", 300)
    compared = 0
    for seed in range(6):
        facts = unlike(random.Random(seed))
        made = cluster(random.Random(seed), FIRST_LIMIT)
        start_long(made, facts, RINGS_LIMIT)
        columns = made.state.snapshot.columns
        for number in range(2):
            assert not of_gang(one_slice(made, NOW + 2.0 + number / 10))
        row = int(columns.gpus.count.argmax())
        gpus, name = int(columns.gpus.count[row]), columns.names[row]
        taker = factories.pod("taker", gpus, node=name, phase="Running")
        found = of_gang(schedule_once(made, [taker], NOW + 2.2, lambda: False))
        for number in range(100):
            found = found or of_gang(schedule_once(made, [], NOW + 3 + number, lambda: False))
        uncut = cluster(random.Random(seed), FIRST_LIMIT * 100)
        schedule_once(uncut, [taker], NOW)
        assert found == of_gang(schedule_once(uncut, facts, NOW))
        check_invariants(made)
        compared += bool(found)
    assert compared >= 2


def test_a_slice_does_not_look_again_for_what_an_earlier_one_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the slices' work together is little more than that of one uncut attempt."""
    monkeypatch.setattr(work_meter, "ASK_UNITS", 2_000)
    facts = unlike(random.Random(1))
    uncut = cluster(random.Random(1), FIRST_LIMIT * 100)
    schedule_once(uncut, facts, NOW)
    made = cluster(random.Random(1), FIRST_LIMIT)
    start_long(made, facts, RINGS_LIMIT)
    meter = made.state.snapshot.meter
    meter.longest = slices = 0
    for number in range(100):
        decided = one_slice(made, NOW + 2.0 + number / 10)
        slices += 1
        if of_gang(decided):
            break
    assert 4 <= slices < MAX_SLICES
    assert meter.longest < uncut.state.snapshot.meter.longest / 2


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
