"""NICs by rail: counted like any resource, and reported, limited and refused like other NICs."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import NodeSeen, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import RAIL, RDMA
from protos.topology import Grant, NodeTopology
from tests.central import factories
from tests.central.kube.raw_objects import container, reader
from tests.central.kube.raw_objects import pod as raw_pod
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.inventory.test_nics import cards, topology

RAIL_1 = f"{RAIL}1"


def with_rails(what: NodeTopology, *down: str) -> NodeTopology:
    """Each NIC on a rail, except mlx5_0."""
    return replace(
        what,
        hcas=tuple(
            replace(
                hca,
                rail=f"{RAIL}{number}" if number else "",
                why="no link" if hca.name in down else "",
            )
            for number, hca in enumerate(what.hcas)
        ),
    )


def node() -> NodeSeen:
    seen = factories.node("a", gpus=4)
    return replace(seen, allocatable={**seen.allocatable, RDMA: 1, RAIL_1: 2, f"{RAIL}2": 2})


def pod(name: str, *rails: str, limits: tuple[tuple[str, int], ...] = (), nics: int = 0) -> PodSeen:
    plain = factories.pod(name, 1)
    asked = {**dict(plain.spec.requests), **dict.fromkeys(rails, 1)}
    if nics:
        asked[RDMA] = nics
    spec = replace(
        plain.spec,
        requests=tuple(sorted(asked.items())),
        rail_containers=tuple(("main", rail) for rail in rails),
        rdma_containers=(("main", nics),) if nics else (),
        rdma_limits=limits,
    )
    return replace(plain, spec=spec)


def scheduler(what: NodeTopology, *grants: Grant) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [node(), factories.report("a", what, 1, grants)], 0.0)
    return made


def bound(made: Scheduler, *pods: PodSeen, at: float = 0.0) -> list[str]:
    return sorted(
        each.pod.removeprefix("uid-")
        for each in schedule_once(made, list(pods), at)
        if isinstance(each, Bind)
    )


def test_a_rail_is_counted_and_is_not_planned_for_others() -> None:
    made = scheduler(with_rails(topology()))
    assert len(bound(made, *(pod(name, RAIL_1) for name in ("one", "two", "three")))) == 2
    assert bound(made, pod("plain", nics=1), at=1.0) == ["plain"]
    assert cards(made) == {"plain": ("mlx5_0",)}, "the others are offered by rail"
    check_invariants(made)


def test_the_limits_of_a_pod_reach_each_of_its_rails() -> None:
    made = scheduler(with_rails(topology()))
    wish = (("hca_handle", 8),)
    assert bound(made, pod("one", RAIL_1, f"{RAIL}2", limits=wish), pod("two", RAIL_1)) == [
        "one",
        "two",
    ]
    told = {each for each in made.state.planned_devices("a") if each.resource.startswith(RAIL)}
    assert told == {Grant("ns", "one", "main", rail, (), wish) for rail in (RAIL_1, f"{RAIL}2")}
    assert made.state.nodes_to_notify == {"a"}


def test_a_rail_without_a_link_is_said_of_its_pod() -> None:
    made = scheduler(with_rails(topology()))
    bound(made, pod("one", RAIL_1))
    held = (factories.grant("one", 1), Grant("ns", "one", "main", RAIL_1, ("mlx5_1::0",)))
    down = factories.report("a", with_rails(topology(), "mlx5_1"), 2, held)
    schedule_once(made, [down], 1.0)
    assert made.state.nodes["a"].unhealthy_nics() == {"mlx5_1": "no link"}
    gone = factories.report("a", replace(topology(), hcas=(), links=()), 3, held)
    schedule_once(made, [gone], 2.0)
    assert made.state.nodes["a"].unhealthy_nics() == {"mlx5_1": "it is gone"}


def test_what_a_pod_says_of_rails() -> None:
    def asking(name: str, *rails: str) -> dict[str, object]:
        made = container(name)
        made["resources"]["requests"].update(dict.fromkeys(rails, "1"))
        return made

    both = reader().pod(raw_pod("p", asking("a", RAIL_1), asking("b", f"{RAIL}0", RAIL_1))).spec
    assert both.rail_containers == (("b", f"{RAIL}0"), ("a", RAIL_1), ("b", RAIL_1))
    assert both.request(RAIL_1) == 2
    assert both.nics_in_pod_network
    assert not both.rdma_containers
    meta = {"annotations": {"lockstep.dev/rdma-hca-handles": "8"}}
    limited = reader().pod(raw_pod("p", asking("a", RAIL_1, f"{RAIL}0"), metadata=meta)).spec
    assert limited.rdma_limits == (("hca_handle", 8),)
    assert limited.request("hca_handle") == 16, "on each of its NICs"
    on_host = reader().pod(raw_pod("q", asking("a", RAIL_1), hostNetwork=True)).spec
    assert not on_host.nics_in_pod_network


def test_limits_of_all_pods_are_summed_for_nics_without_a_rail_only() -> None:
    made = scheduler(with_rails(topology(cap=15)))
    capacity = made.state.nodes["a"].nic_capacity()
    assert capacity is not None
    assert capacity.nics.keys() == {"mlx5_0"}
    bound(made, pod("one", RAIL_1))
    assert made.state.nodes["a"].nic_capacity() == capacity, "the rail's pod takes nothing of it"
    check_invariants(made)


def test_a_later_pod_of_the_name_has_other_rails() -> None:
    held = Grant("ns", "one", "main", RAIL_1, ("mlx5_1::0",))
    made = scheduler(with_rails(topology()), held)
    reported = made.state.nodes["a"].reported
    assert reported.held_rails == {("ns", "one", "main"): ("mlx5_1",)}
    reported.forget("", ("ns", "one"))
    assert reported.held_rails == {}
