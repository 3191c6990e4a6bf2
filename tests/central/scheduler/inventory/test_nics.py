"""Network cards beside GPUs: who is told of which, and wishes that no node can keep."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact, NodeSeen, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import GPU, RDMA
from protos.topology import Grant, Hca, NodeTopology, RdmaLimit
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

WISH = (("hca_handle", 8), ("hca_object", 1000))


def topology(*, cap: int = -1, settable: bool = True) -> NodeTopology:
    """Four GPUs, each beside a card of its own."""
    plain = factories.topology(4)
    cards = tuple(Hca(f"mlx5_{i}", f"0000:8{i}:00.0", shares=2) for i in range(4))

    def word(a: int, b: int) -> str:
        if a == b:
            return "X"
        return "NV12" if max(a, b) < 4 else "PIX" if a % 4 == b % 4 else "NODE"

    return replace(
        plain,
        hcas=cards,
        links=tuple(tuple(word(a, b) for b in range(8)) for a in range(8)),
        rdma_cgroup=tuple((card.name, RdmaLimit(cap)) for card in cards),
        rdma_settable=settable,
    )


def node(name: str = "a") -> NodeSeen:
    seen = factories.node(name, gpus=4)
    return replace(seen, allocatable={**seen.allocatable, RDMA: 8})


def pod(name: str, gpus: int = 1, *, limits: tuple[tuple[str, int], ...] = ()) -> PodSeen:
    plain = factories.pod(name, gpus)
    spec = replace(
        plain.spec,
        requests=tuple(sorted({**dict(plain.spec.requests), RDMA: 1, **dict(limits)}.items())),
        rdma_containers=(("main", 1),),
        rdma_limits=limits,
    )
    return replace(plain, spec=spec)


def scheduler(what: NodeTopology, *grants: Grant) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [node(), factories.report("a", what, 1, grants)], 0.0)
    return made


def cards(made: Scheduler) -> dict[str, tuple[str, ...]]:
    return {
        each.pod: each.device_ids
        for each in made.state.planned_devices("a")
        if each.resource == RDMA
    }


def gpus(made: Scheduler) -> dict[str, tuple[str, ...]]:
    return {
        each.pod: each.device_ids
        for each in made.state.planned_devices("a")
        if each.resource == GPU
    }


def shares(name: str, card: int, number: int = 0) -> Grant:
    return Grant("ns", name, "main", RDMA, (f"mlx5_{card}::{number}",))


def test_the_card_beside_the_planned_gpu() -> None:
    made = scheduler(topology())
    schedule_once(made, [pod("one"), pod("two"), pod("three", 0)], 0.0)
    beside = {name: (f"mlx5_{ids[0][-1]}",) for name, ids in gpus(made).items()}
    assert cards(made) == beside
    assert len(beside) == 2  # three has no GPU: any card will do
    check_invariants(made)


def test_the_truth_ends_the_plan_and_its_card_is_less_free() -> None:
    made = scheduler(topology())
    schedule_once(made, [pod("one"), pod("two")], 0.0)
    truth = (factories.grant("one", 3), shares("one", 3))
    schedule_once(made, [factories.report("a", topology(), 2, truth)], 0.0)
    assert list(cards(made)) == ["two"]
    check_invariants(made)


def test_a_full_card_is_not_planned_for() -> None:
    made = scheduler(topology(), shares("x", 0, 0), shares("y", 0, 1))
    schedule_once(made, [pod("one")], 0.0)
    assert gpus(made) == {"one": ("GPU-0",)}
    assert cards(made)["one"] != ("mlx5_0",)


def test_a_card_that_one_pod_has_alone_is_reported_by_its_address() -> None:
    plain = topology()
    alone = replace(plain, hcas=tuple(replace(card, shares=1) for card in plain.hcas))
    made = scheduler(alone, Grant("ns", "x", "main", RDMA, ("0000:80:00.0",)))
    schedule_once(made, [pod("one")], 0.0)
    assert cards(made)["one"] == ("mlx5_1",)
    check_invariants(made)


def test_between_the_truth_of_the_gpu_and_that_of_the_card() -> None:
    made = scheduler(topology())
    schedule_once(made, [pod("one")], 0.0)
    schedule_once(made, [factories.report("a", topology(), 2, (factories.grant("one", 2),))], 0.0)
    assert cards(made) == {"one": ("mlx5_2",)}


def test_limits_are_told_as_long_as_the_pod_lives() -> None:
    made = scheduler(topology())
    schedule_once(made, [pod("one", limits=WISH), pod("two", 0, limits=WISH)], 0.0)
    assert made.state.nodes_to_notify == {"a"}
    truth = (factories.grant("one", 1), shares("one", 1), shares("two", 2))
    schedule_once(made, [factories.report("a", topology(), 2, truth)], 0.0)
    told = {each.pod: each for each in made.state.planned_devices("a")}
    assert told["one"] == Grant("ns", "one", "main", RDMA, ("mlx5_1",), WISH)
    assert told["two"] == Grant("ns", "two", "main", RDMA, ("mlx5_2",), WISH)
    schedule_once(made, [replace(pod("one", limits=WISH), node="a", phase="Succeeded")], 0.0)
    assert [each.pod for each in made.state.planned_devices("a")] == ["two"]
    check_invariants(made)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (topology(settable=False), "1 node: sets no RDMA limits"),
        (topology(cap=7), "1 node: at most 7 RDMA handles"),
    ],
)
def test_a_wish_that_no_node_can_keep_waits_with_a_sentence(
    what: NodeTopology, sentence: str
) -> None:
    made = scheduler(what)
    assert not [
        d for d in schedule_once(made, [pod("one", limits=WISH)], 0.0) if isinstance(d, Bind)
    ]
    assert sentence in made.state.gang_of(made.state.pods["uid-one"]).attempt.reason  # type: ignore[union-attr]  # it has one
    better = factories.report("a", topology(cap=8), 2)
    assert [d for d in schedule_once(made, [better], 1.0) if isinstance(d, Bind)]
    check_invariants(made)


def test_a_wish_waits_for_the_first_report() -> None:
    made = new_scheduler(factories.LEVELS)
    wishing: list[Fact] = [node(), pod("one", limits=WISH)]
    assert not [d for d in schedule_once(made, wishing, 0.0) if isinstance(d, Bind)]
    reported = schedule_once(made, [factories.report("a", topology())], 1.0)
    assert [d for d in reported if isinstance(d, Bind)]


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(each.name for each in decisions if isinstance(each, Bind))


def test_wishes_are_summed_as_a_resource() -> None:
    """Each fits alone; four cards of 20 handles have room for eight pods of 10, and not for nine."""
    made = scheduler(topology(cap=20))
    schedule_once(made, [replace(node(), allocatable={**node().allocatable, RDMA: 100})], 0.0)
    wish = (("hca_handle", 10),)
    many = [pod(f"p{number}", 0, limits=wish) for number in range(9)]
    assert bound(schedule_once(made, many, 1.0)) == [f"p{number}" for number in range(8)]
    late = made.state.gang_of(made.state.pods["uid-p8"])
    assert late is not None
    assert "RDMA handles" in late.attempt.reason
    schedule_once(made, [replace(many[0], node="a", phase="Succeeded")], 2.0)
    assert made.state.pods["uid-p8"].node == "a"
    check_invariants(made)


def test_a_card_is_planned_that_can_keep_the_wish() -> None:
    made = scheduler(topology(cap=20))
    wish = (("hca_handle", 12),)
    schedule_once(made, [pod("one", limits=wish)], 0.0)
    mine = cards(made)["one"]
    truth = (factories.grant("one", 0), Grant("ns", "one", "main", RDMA, (f"{mine[0]}::0",)))
    schedule_once(
        made, [factories.report("a", topology(cap=20), 2, truth), pod("two", limits=wish)], 1.0
    )
    assert gpus(made)["two"] != gpus(made).get("one")
    assert cards(made)["two"] != mine
    check_invariants(made)


def waits_for(made: Scheduler, name: str) -> str:
    gang = made.state.gang_of(made.state.pods[f"uid-{name}"])
    assert gang is not None
    return gang.attempt.reason


def two_cards(cap: int, default: int = -1) -> NodeTopology:
    return factories.carded(factories.topology(4), cap, default)


def carded(what: NodeTopology, *grants: Grant) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("a", gpus=4), factories.report("a", what, 1, grants)], 0.0)
    return made


def test_limits_are_summed_card_by_card() -> None:
    """Thirty handles in all, and two cards that have five left each."""
    made = carded(two_cards(15))
    pods = [factories.wishing(factories.pod(f"p{number}"), 10) for number in range(3)]
    assert bound(schedule_once(made, pods, 1.0)) == ["p0", "p1"]
    assert sorted(cards(made).values()) == [("mlx5_0",), ("mlx5_1",)]
    assert "short of RDMA NICs with 10 RDMA handles left, at most 5: enough for 0" in waits_for(
        made, "p2"
    )
    check_invariants(made)


def test_cards_that_are_enough_are_not_named_where_cpu_lacks() -> None:
    made = carded(two_cards(15))
    facts: list[Fact] = [factories.pod("other", cpu=30_000, node="a"), factories.gang("g", 2)]
    facts += [factories.wishing(factories.pod(f"g-{i}", 0, "g", cpu=20_000), 10) for i in range(2)]
    assert not bound(schedule_once(made, facts, 1.0))
    assert "RDMA NICs" not in waits_for(made, "g-0")
    assert "1 node lacks 6 of 20 cpu for one more pod" in waits_for(made, "g-0")


def test_limits_that_the_agent_gives_by_default_are_summed() -> None:
    made = carded(two_cards(20, default=8))
    plain = [factories.wishing(factories.pod(f"p{number}"), -1) for number in range(5)]
    assert bound(schedule_once(made, plain, 1.0)) == ["p0", "p1", "p2", "p3"]
    assert "short of RDMA NICs with the default limits left" in waits_for(made, "p4")
    wish = factories.wishing(factories.pod("wish"), 5)
    assert not bound(schedule_once(made, [wish], 2.0))
    ended = replace(plain[0], node="a", phase="Succeeded")
    assert bound(schedule_once(made, [ended], 3.0)) == ["p4"]
    check_invariants(made)


def test_strangers_have_the_default() -> None:
    made = carded(two_cards(20, default=8), shares("x", 0), shares("y", 0, 1), shares("z", 1))
    pods = [factories.wishing(factories.pod(f"p{number}"), 10) for number in range(2)]
    assert bound(schedule_once(made, pods, 1.0)) == ["p0"]
    assert cards(made) == {"p0": ("mlx5_1",)}
    check_invariants(made)


def test_the_nearest_card_is_left_to_whoever_fits_nowhere_else() -> None:
    """Both GPUs are closest to mlx5_0. Who asks for less goes to the other, where the big one has no room."""
    made = carded(two_cards(20), shares("x", 1))
    schedule_once(made, [factories.report("a", _with_use(12), 2, (shares("x", 1),))], 0.5)
    small, big = (
        factories.wishing(factories.pod("small", 1), 8),
        factories.wishing(factories.pod("big", 1), 20),
    )
    assert bound(schedule_once(made, [small, big], 1.0)) == ["big", "small"]
    assert cards(made) == {"big": ("mlx5_0",), "small": ("mlx5_1",)}
    check_invariants(made)


def _with_use(default: int) -> NodeTopology:
    return two_cards(20, default)


def test_what_was_dealt_stays_dealt() -> None:
    """Its pod may have been admitted by now: another plan would be a second promise."""
    made = carded(two_cards(20))
    schedule_once(made, [factories.wishing(factories.pod("one", 1), 8)], 1.0)
    assert cards(made) == {"one": ("mlx5_0",)}
    schedule_once(made, [factories.wishing(factories.pod("two", 1), 20)], 2.0)
    assert cards(made) == {"one": ("mlx5_0",), "two": ("mlx5_1",)}
    schedule_once(
        made, [factories.report("a", two_cards(20), 2, (factories.grant("one", 3),))], 3.0
    )
    assert cards(made)["one"] == ("mlx5_0",)
    check_invariants(made)


def test_who_is_more_urgent_takes_the_room_of_a_card() -> None:
    made = carded(two_cards(10))
    low = [factories.wishing(factories.pod(f"low{number}", 1), 6) for number in range(2)]
    schedule_once(made, low, 1.0)
    high = factories.wishing(factories.pod("high", 1, priority=9), 10)
    gone = [each.name for each in schedule_once(made, [high], 2.0) if isinstance(each, Evict)]
    assert len(gone) == 1
    assert bound(schedule_once(made, [PodGone(f"uid-{gone[0]}")], 3.0)) == ["high"]
    check_invariants(made)


def test_cards_of_the_hosts_network_alone() -> None:
    what = replace(topology(), rdma_exclusive=True)
    made = scheduler(what)
    assert not bound(schedule_once(made, [pod("one")], 1.0))
    reason = "1 node: RDMA NICs need hostNetwork (exclusive network namespaces)"
    assert reason in waits_for(made, "one")
    plain = pod("host")
    on_host = replace(plain, spec=replace(plain.spec, on_host=True))
    assert bound(schedule_once(made, [on_host, factories.pod("none", 1)], 2.0)) == ["host", "none"]
    assert bound(schedule_once(made, [factories.report("a", topology(), 2)], 3.0)) == ["one"]
    check_invariants(made)


def test_a_planned_card_that_no_longer_has_the_handles_is_given_up() -> None:
    made = scheduler(topology(cap=20))
    schedule_once(made, [pod("one", limits=WISH)], 0.0)
    (card,) = cards(made)["one"]
    what = topology(cap=20)
    limits = tuple(
        (name, RdmaLimit(7) if name == card else limit) for name, limit in what.rdma_cgroup or ()
    )
    schedule_once(made, [factories.report("a", replace(what, rdma_cgroup=limits), 2)], 1.0)
    assert cards(made)["one"] != (card,)
    check_invariants(made)
