"""Network cards beside GPUs: who is told of which, and wishes that no node can keep."""

from dataclasses import replace

import pytest

from central.core.cluster import Cluster
from central.core.cycle import turn
from central.core.decisions import Bind, Decision
from central.core.facts import Fact, NodeSeen, PodSeen
from protos.names import GPU, RDMA
from protos.topology import Grant, Hca, NodeTopology, RdmaLimit
from tests.central.core import build

WISH = (("hca_handle", 8), ("hca_object", 1000))


def topology(*, cap: int = -1, settable: bool = True) -> NodeTopology:
    """Four GPUs, each beside a card of its own."""
    plain = build.topology(4)
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
    seen = build.node(name, gpus=4)
    return replace(seen, allocatable={**seen.allocatable, RDMA: 8})


def pod(name: str, gpus: int = 1, *, limits: tuple[tuple[str, int], ...] = ()) -> PodSeen:
    plain = build.pod(name, gpus)
    spec = replace(
        plain.spec,
        requests=tuple(sorted({**dict(plain.spec.requests), RDMA: 1, **dict(limits)}.items())),
        rdma_containers=(("main", 1),),
        rdma_limits=limits,
    )
    return replace(plain, spec=spec)


def cluster(what: NodeTopology, *grants: Grant) -> Cluster:
    made = Cluster(build.LEVELS)
    turn(made, [node(), build.report("a", what, 1, grants)], 0.0)
    return made


def cards(made: Cluster) -> dict[str, tuple[str, ...]]:
    return {each.pod: each.device_ids for each in made.intents("a") if each.resource == RDMA}


def gpus(made: Cluster) -> dict[str, tuple[str, ...]]:
    return {each.pod: each.device_ids for each in made.intents("a") if each.resource == GPU}


def shares(name: str, card: int, number: int = 0) -> Grant:
    return Grant("ns", name, "main", RDMA, (f"mlx5_{card}::{number}",))


def test_the_card_beside_the_planned_gpu() -> None:
    made = cluster(topology())
    turn(made, [pod("one"), pod("two"), pod("three", 0)], 0.0)
    beside = {name: (f"mlx5_{ids[0][-1]}",) for name, ids in gpus(made).items()}
    assert cards(made) == beside
    assert len(beside) == 2  # three has no GPU: any card will do
    made.check()


def test_the_truth_ends_the_plan_and_its_card_is_less_free() -> None:
    made = cluster(topology())
    turn(made, [pod("one"), pod("two")], 0.0)
    truth = (build.grant("one", 3), shares("one", 3))
    turn(made, [build.report("a", topology(), 2, truth)], 0.0)
    assert list(cards(made)) == ["two"]
    made.check()


def test_a_full_card_is_not_planned_for() -> None:
    made = cluster(topology(), shares("x", 0, 0), shares("y", 0, 1))
    turn(made, [pod("one")], 0.0)
    assert gpus(made) == {"one": ("GPU-0",)}
    assert cards(made)["one"] != ("mlx5_0",)


def test_between_the_truth_of_the_gpu_and_that_of_the_card() -> None:
    made = cluster(topology())
    turn(made, [pod("one")], 0.0)
    turn(made, [build.report("a", topology(), 2, (build.grant("one", 2),))], 0.0)
    assert cards(made) == {"one": ("mlx5_2",)}


def test_limits_are_told_as_long_as_the_pod_lives() -> None:
    made = cluster(topology())
    turn(made, [pod("one", limits=WISH), pod("two", 0, limits=WISH)], 0.0)
    assert made.replanned == {"a"}
    truth = (build.grant("one", 1), shares("one", 1), shares("two", 2))
    turn(made, [build.report("a", topology(), 2, truth)], 0.0)
    told = {each.pod: each for each in made.intents("a")}
    assert told["one"] == Grant("ns", "one", "main", RDMA, ("mlx5_1",), WISH)
    assert told["two"] == Grant("ns", "two", "main", RDMA, ("mlx5_2",), WISH)
    turn(made, [replace(pod("one", limits=WISH), node="a", phase="Succeeded")], 0.0)
    assert [each.pod for each in made.intents("a")] == ["two"]
    made.check()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (topology(settable=False), "1 node: sets no RDMA limits"),
        (topology(cap=7), "1 node: hca_handle of at most 7"),
    ],
)
def test_a_wish_that_no_node_can_keep_waits_with_a_sentence(
    what: NodeTopology, sentence: str
) -> None:
    made = cluster(what)
    assert not [d for d in turn(made, [pod("one", limits=WISH)], 0.0) if isinstance(d, Bind)]
    assert sentence in made.gang_of(made.pods["uid-one"]).reason  # type: ignore[union-attr]  # it has one
    better = build.report("a", topology(cap=8), 2)
    assert [d for d in turn(made, [better], 1.0) if isinstance(d, Bind)]
    made.check()


def test_a_wish_waits_for_the_first_report() -> None:
    made = Cluster(build.LEVELS)
    wishing: list[Fact] = [node(), pod("one", limits=WISH)]
    assert not [d for d in turn(made, wishing, 0.0) if isinstance(d, Bind)]
    reported = turn(made, [build.report("a", topology())], 1.0)
    assert [d for d in reported if isinstance(d, Bind)]


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(each.name for each in decisions if isinstance(each, Bind))


def test_wishes_are_summed_as_a_resource() -> None:
    """Each fits alone; four cards of 20 handles have room for eight pods of 10, and not for nine."""
    made = cluster(topology(cap=20))
    turn(made, [replace(node(), allocatable={**node().allocatable, RDMA: 100})], 0.0)
    wish = (("hca_handle", 10),)
    many = [pod(f"p{number}", 0, limits=wish) for number in range(9)]
    assert bound(turn(made, many, 1.0)) == [f"p{number}" for number in range(8)]
    late = made.gang_of(made.pods["uid-p8"])
    assert late is not None
    assert "RDMA handles" in late.reason
    turn(made, [replace(many[0], node="a", phase="Succeeded")], 2.0)
    assert made.pods["uid-p8"].node == "a"
    made.check()


def test_a_card_is_planned_that_can_keep_the_wish() -> None:
    made = cluster(topology(cap=20))
    wish = (("hca_handle", 12),)
    turn(made, [pod("one", limits=wish)], 0.0)
    mine = cards(made)["one"]
    truth = (build.grant("one", 0), Grant("ns", "one", "main", RDMA, (f"{mine[0]}::0",)))
    turn(made, [build.report("a", topology(cap=20), 2, truth), pod("two", limits=wish)], 1.0)
    assert gpus(made)["two"] != gpus(made).get("one")
    assert cards(made)["two"] != mine
    made.check()
