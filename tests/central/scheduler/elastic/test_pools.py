"""How seats are divided between queues, priorities and gangs, and which gangs and nodes a pool has."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact, QueueSeen
from central.model.jobspec import FILL, GOODPUT, ElasticTask
from central.model.speed_table import SpeedTable
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic import pools
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.pools import Pool
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.scheduler import Scheduler
from protos.names import GPU, RACK
from tests.central import factories

GPUS = 64  # of one node; a power of two, so that shares are exact


class Rig:
    def __init__(self, *facts: Fact) -> None:
        self.made: Scheduler = new_scheduler(factories.LEVELS)
        schedule_once(self.made, list(facts), 0.0)

    @property
    def context(self) -> PreemptionContext:
        return self.made.preemption

    def elastic(self, name: str, least: int = 1, most: int = 8, **terms: object) -> ElasticGang:
        gang = self.made.state.gangs["ns", name, True]
        placed = dict(enumerate(gang.counts.placed))
        task = ElasticTask("w", least, most, **terms)  # type: ignore[arg-type]  # a test's shorthand
        return ElasticGang(gang, task, frozenset(placed), placed=placed)

    def pool(self, seats: int, *gangs: ElasticGang) -> Pool:
        spec = gangs[0].spec
        assert spec is not None
        return Pool(spec, list(gangs), None, seats)


def running(
    name: str, size: int, node: str = "n", minimum: int = 1, gpus: int = 1, **group: object
) -> list[Fact]:
    """A gang whose members run there, each with one GPU."""
    return [
        factories.gang(name, minimum, **group),
        *(
            factories.pod(f"{name}-{i}", gpus, name, node=node, phase="Running")
            for i in range(size)
        ),
    ]


def node(name: str = "n", **more: object) -> Fact:
    return factories.node(name, gpus=GPUS, **more)  # type: ignore[arg-type]  # a test's shorthand


# --- inside a queue ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("priorities", "seats", "expected"),
    [
        ((0, 0), 4, [3, 3]),
        ((1, 0), 4, [5, 1]),
        ((0, 1), 4, [1, 5]),
        ((0, 1), 9, [3, 8]),  # the more urgent one has its most
        ((0, 2, 1), 10, [1, 8, 4]),
        ((0, 2, 0), 9, [2, 8, 2]),
        ((0, 1), 0, [1, 1]),
        ((1, 0), -3, [1, 1]),  # others hold more than there is
        ((0, 1), 100, [8, 8]),
    ],
)
def test_the_more_urgent_gang_has_its_most_before_others_have_any(
    priorities: tuple[int, ...], seats: int, expected: list[int]
) -> None:
    facts = [
        fact for i, value in enumerate(priorities) for fact in running(f"g{i}", 1, priority=value)
    ]
    rig = Rig(node(), *facts)
    gangs = [rig.elastic(f"g{i}") for i in range(len(priorities))]
    assert pools.targets(rig.context, rig.pool(seats, *gangs)) == expected


def test_gangs_that_all_fill_go_in_line_and_any_other_makes_them_share() -> None:
    rig = Rig(node(), *running("a", 1), *running("b", 1))
    both = [rig.elastic(name, objective=FILL) for name in ("a", "b")]
    assert pools.targets(rig.context, rig.pool(6, *both)) == [7, 1]
    unlike = [both[0], rig.elastic("b")]
    assert pools.targets(rig.context, rig.pool(6, *unlike)) == [4, 4]


def test_a_gang_that_would_be_no_faster_leaves_the_rest_to_others() -> None:
    rig = Rig(node(), *running("a", 1), *running("b", 1))
    slow = rig.elastic("a", useful=(1, 2, 3, 6))
    other = rig.elastic("b", most=20)
    sizes = {seats: pools.targets(rig.context, rig.pool(seats, slow, other)) for seats in range(12)}
    assert all(size in (1, 2, 3, 6) for size, _ in sizes.values())
    for seats, (size, others) in sizes.items():
        assert size - 1 + others - 1 == seats, seats


# --- between queues ----------------------------------------------------------------


def plainly(
    seats: int,
    queues: dict[str, QueueSeen],
    used: Counter[str],
    wanted: Counter[str],
    held: Counter[str],
) -> Counter[str]:
    """Seat by seat to the queue whose share by weight is least, of those that can use one more."""
    given: Counter[str] = Counter()
    for _ in range(max(seats, 0)):

        def use(name: str) -> int:
            return used[name] - held[name] + given[name]

        able = [
            name
            for name, seen in queues.items()
            if given[name] < wanted[name] and use(name) < dict(seen.capability).get(GPU, 10**6)
        ]
        if not able:
            break
        given[min(able, key=lambda name: (Fraction(use(name), queues[name].weight), name))] += 1
    return given


@pytest.mark.parametrize("seed", range(60))
def test_seats_go_to_the_queue_with_the_least_share_by_weight(seed: int) -> None:
    dice = random.Random(seed)
    queues = {
        name: QueueSeen(
            name,
            weight=dice.choice((1, 1, 2, 4)),
            capability=((GPU, dice.randint(4, 20)),) if dice.random() < 0.4 else (),
        )
        for name in ("a", "b", "c")
    }
    facts: list[Fact] = [node(), *queues.values()]
    used, wanted, held = Counter[str](), Counter[str](), Counter[str]()
    terms = []
    for number in range(dice.randint(2, 5)):
        queue, size, most = dice.choice("abc"), dice.randint(1, 4), dice.randint(1, 9)
        least = dice.randint(1, size)
        most = max(most, size)
        facts += running(f"g{number}", size, queue=queue, priority=dice.choice((0, 0, 1)))
        used[queue] += size
        wanted[queue] += most - least
        held[queue] += size - least
        terms.append((f"g{number}", least, most, queue))
    for name in "abc":  # what is not elastic counts too
        if more := dice.randint(0, 4):
            facts += running(f"r{name}", more, queue=name)
            used[name] += more
    rig = Rig(*facts)
    gangs = [rig.elastic(name, least, most) for name, least, most, _ in terms]
    seats = dice.randint(-2, 20)
    targets = pools.targets(rig.context, rig.pool(seats, *gangs))
    given: Counter[str] = Counter()
    for (_, least, _, queue), size in zip(terms, targets, strict=True):
        given[queue] += size - least
    assert +given == plainly(seats, queues, used, wanted, held)


def test_the_dominant_resource_of_a_member_is_what_counts() -> None:
    """b's other gang uses much CPU, of which a member takes little; by GPUs both queues have one each."""
    busy = replace(factories.pod("busy", 0, "busy", cpu=32_000, node="n"), phase="Running")
    rig = Rig(
        node(),
        QueueSeen("a"),
        QueueSeen("b"),
        *running("x", 1, queue="a"),
        *running("y", 1, queue="b"),
        factories.gang("busy", 1, queue="b"),
        busy,
    )
    gangs = [rig.elastic("x", most=60), rig.elastic("y", most=60)]
    assert pools.targets(rig.context, rig.pool(20, *gangs)) == [21, 1]
    assert pools.targets(rig.context, rig.pool(40, *gangs)) == [37, 5]


def test_the_capability_of_a_queue_above_holds_too() -> None:
    rig = Rig(
        node(),
        QueueSeen("org", capability=((GPU, 5),)),
        QueueSeen("a", parent="org"),
        QueueSeen("b"),
        *running("x", 2, queue="a"),
        *running("other", 1, queue="a"),
        *running("y", 1, queue="b"),
    )
    gangs = [rig.elastic("x", most=30), rig.elastic("y", most=30)]
    assert pools.targets(rig.context, rig.pool(10, *gangs)) == [4, 8]


@pytest.mark.parametrize(("limit", "full"), [(2, True), (3, True), (4, False), (None, False)])
def test_a_queue_is_at_its_capability_once_no_member_more_fits(
    limit: int | None, *, full: bool
) -> None:
    org = QueueSeen("org", capability=((GPU, limit),) if limit else ())
    rig = Rig(node(), org, QueueSeen("a", parent="org"), *running("x", 3, queue="a"))
    spec = rig.elastic("x").spec
    assert spec is not None
    assert pools.at_capability(rig.context, spec, "a") == full
    assert not pools.at_capability(rig.context, factories.spec(0), "a")  # asks for no GPU


# --- which gangs and nodes ---------------------------------------------------------


def test_gangs_of_one_kind_of_pod_that_may_use_the_same_nodes_are_one_pool() -> None:
    racks = {"n": "r1", "m": "r1", "o": "r2"}
    rig = Rig(
        *(node(name, rack=rack) for name, rack in racks.items()),
        *running("c", 1),
        *running("b", 1),
        *running("a", 1, gpus=2),
        *running("x", 1, node="m", topology_required=RACK),
        *running("y", 1, node="n", topology_required=RACK),
        *running("z", 1, node="o", topology_required=RACK),
        *running("w", 1, node="o", required_tier=1),
        *running("host", 1, node="m", topology_required="node"),
        *running("late", 1),
    )
    names = ("a", "b", "c", "x", "y", "z", "w", "host")
    gangs = [rig.elastic(name) for name in names]
    line = {name: rank for rank, name in enumerate(("c", "y", "host", "x", "a", "z", "w", "b"))}
    for gang in gangs:
        gang.gang.attempt.rank = line[gang.gang.name]  # type: ignore[assignment]  # only compared
    gangs.append(rig.elastic("late", least=2))  # has not started
    row = rig.made.state.snapshot.columns.row
    found = [
        ([gang.gang.name for gang in pool.gangs], pool.rows)
        for pool in pools.pools_of(rig.context, gangs)
    ]
    first, second = frozenset((row["n"], row["m"])), frozenset((row["o"],))
    assert found == [
        (["c", "b"], None),
        (["y", "x"], first),
        (["host"], frozenset((row["m"],))),
        (["a"], None),
        (["z", "w"], second),
    ]


def test_newcomers_join_those_of_their_kind_that_may_be_anywhere() -> None:
    rig = Rig(
        node(rack="r"),
        *running("a", 1),
        *running("big", 1, gpus=2),
        *running("ends", 1),
        *running("tied", 1, topology_required=RACK),
        *running("below", 1, required_tier=1),
        *running("new", 1),
        *running("late", 1),
    )
    gangs = [rig.elastic(name) for name in ("a", "big", "ends", "tied", "below")]
    gangs[2].ending = True
    gangs.append(rig.elastic("late", least=2))
    new = rig.elastic("new")
    spec = new.spec
    assert spec is not None
    for newcomer, line in ((0, ["new", "a"]), (2, ["a", "new"])):
        new.gang.attempt.rank = newcomer  # type: ignore[assignment]  # only compared
        gangs[0].gang.attempt.rank = 1  # type: ignore[assignment]
        pool = pools.pool_with(rig.context, gangs, [new], spec)
        assert [gang.gang.name for gang in pool.gangs] == line


def test_a_gang_whose_work_ends_leaves_its_seats_to_the_others() -> None:
    rig = Rig(factories.node("n", gpus=8), *running("a", 3), *running("b", 2))
    ending, other = rig.elastic("a", most=30), rig.elastic("b", most=30)
    assert pools.share(rig.context, rig.pool(0, ending, other), 0.0) == {ending: 4, other: 4}
    ending.ending = True
    pool = rig.pool(0, ending, other)
    assert pools.share(rig.context, pool, 0.0) == {other: 5}  # three are still held
    assert (pool.seats, pool.free) == (4, 3)
    other.ending = True
    assert pools.share(rig.context, rig.pool(0, ending, other), 0.0) == {}


@pytest.mark.parametrize(
    ("headroom", "seats", "free"),
    [(0.0, 6, 3), (0.25, 4, 1), (0.3, 3, 0), (0.5, 2, -1)],  # of 8; 3 are free, 5 are held
)
def test_seats_are_what_fits_without_the_members_but_for_the_headroom(
    headroom: float, seats: int, free: int
) -> None:
    rig = Rig(factories.node("n", gpus=8), *running("a", 3), *running("b", 2))
    pool = rig.pool(0, rig.elastic("a"), rig.elastic("b"))
    freed = rig.made.state.snapshot.freed
    pools.count_seats(rig.context, pool, headroom)
    assert (pool.seats, pool.free) == (seats, free)
    assert rig.made.state.snapshot.freed == freed


def test_only_the_nodes_of_the_pool_have_seats() -> None:
    rig = Rig(
        factories.node("n", gpus=8),
        factories.node("m", gpus=8),
        *running("a", 3),
        *running("b", 2, "m"),
    )
    row = rig.made.state.snapshot.columns.row
    pool = rig.pool(0, rig.elastic("a"))
    for rows, seats, free in ((None, 13, 11), (["n"], 7, 5)):
        pool.rows = None if rows is None else frozenset(row[name] for name in rows)
        pools.count_seats(rig.context, pool, 0.0)
        assert (pool.seats, pool.free) == (seats, free)


def test_seats_that_are_kept_for_another_gang_are_not_counted() -> None:
    """The urgent gang evicts the other one, and one seat that is free is kept for it."""
    rig = Rig(factories.node("n", gpus=8), *running("a", 3), *running("low", 1, gpus=4))
    urgent: list[Fact] = [
        factories.gang("urgent", 1, priority=9),
        factories.pod("urgent-0", 5, "urgent"),
    ]
    decisions = schedule_once(rig.made, urgent, 1.0)
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["low-0"]
    assert list(rig.context.reservations) == [("ns", "urgent", True)]
    pool = rig.pool(0, rig.elastic("a"))
    pools.count_seats(rig.context, pool, 0.0)
    assert (pool.seats, pool.free) == (2, 0)
    own = rig.pool(0, rig.elastic("a"), rig.elastic("urgent"))
    pools.count_seats(rig.context, own, 0.0)
    assert own.free == 1


def test_a_level_that_the_cluster_does_not_have_limits_no_growth() -> None:
    rig = Rig(node(), *running("a", 1, topology_required="example.com/hall"))
    (pool,) = pools.pools_of(rig.context, [rig.elastic("a")])
    assert pool.rows is None


def test_queues_that_gangs_name_count_only_where_there_are_queues() -> None:
    rig = Rig(node(), *running("a", 1, queue="team"), *running("b", 1, queue="other"))
    pool = rig.pool(4, rig.elastic("a"), rig.elastic("b"))
    assert pools.targets(rig.context, pool) == [3, 3]


def test_gangs_that_all_ask_for_goodput_share_by_their_speeds() -> None:
    """The one that gains nothing beyond two members leaves the rest to the other."""
    flat = SpeedTable(((1, ((1, 1.0), (2, 2.0), (8, 2.02))),))
    rig = Rig(node(), *running("a", 1), *running("b", 1))
    a = rig.elastic("a", objective=GOODPUT, speeds=flat, useful=tuple(range(1, 9)))
    b = rig.elastic("b", objective=GOODPUT)
    assert pools.targets(rig.context, rig.pool(6, a, b)) == [2, 6]


# --- speeds ------------------------------------------------------------------------


def test_growth_that_reaches_further_nodes_must_be_faster_there() -> None:
    """Three nodes of 4 GPUs, 2 of the gang on the first; one that is taken has room for 1."""
    rig = Rig(
        *(factories.node(name, gpus=4) for name in ("n", "m", "o")),
        *running("g", 2),
        *running("r", 3, "o"),
    )
    slow_apart = SpeedTable(
        ((1, ((1, 1.0), (4, 4.0))), (2, ((4, 1.0), (8, 4.5))), (3, ((9, 2.0),)))
    )
    gang = rig.elastic("g", most=9, speeds=slow_apart, useful=tuple(range(1, 10)))
    pool = rig.pool(0, gang)
    found = {goal: pools.faster(rig.context, pool, gang, goal) for goal in range(1, 10)}
    assert found == {1: 1, 2: 2, 3: 3, 4: 4, 5: 4, 6: 6, 7: 7, 8: 8, 9: 8}
    plain = rig.elastic("g", most=9)
    assert pools.faster(rig.context, pool, plain, 9) == 9
