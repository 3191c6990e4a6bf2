"""RDMA usage of pods on NICs: shown by explain, and a warning for a pod at its limit."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Decision, EmitWarning
from central.model.facts import Fact, NodeGone, PodGone, PodSeen, RdmaUsed
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.queries import explain, node_views
from protos.topology import RdmaLimit, RdmaUse
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def say(made: Scheduler, *facts: Fact, now: float = 0.0) -> list[Decision]:
    decisions = schedule_once(made, list(facts), now)
    check_invariants(made)
    return decisions


def warnings(decisions: list[Decision]) -> list[str]:
    return [f"{each.name} {each.why}" for each in decisions if isinstance(each, EmitWarning)]


def used(pod: str, handles: int, objects: int = 3, failures: int = -1, card: int = 0) -> RdmaUse:
    limit = RdmaLimit(8, 100)
    return RdmaUse("ns", pod, f"mlx5_{card}", RdmaLimit(handles, objects), limit, failures)


def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    what = factories.carded(factories.topology(4), 64)
    say(
        made,
        factories.node("a", gpus=4),
        factories.report("a", what, 1, (factories.grant_card("p", 0),)),
    )
    say(made, factories.gang("g", 1, uid="uid-g"), pod("p"), pod("q"))
    return made


def pod(name: str) -> PodSeen:
    return factories.wishing(factories.pod(name, 1, "g"), 8)


def test_a_pod_at_its_limit_gets_one_warning() -> None:
    made = scheduler()
    assert not warnings(say(made, RdmaUsed("a", (used("p", 7),))))
    decisions = say(made, RdmaUsed("a", (used("p", 8),)), now=5.0)
    assert warnings(decisions) == ["p is at its limit of 8 RDMA handles on NIC mlx5_0 of node a"]
    warned = next(each for each in decisions if isinstance(each, EmitWarning))
    assert (warned.gang, warned.gang_uid, warned.reason) == ("g", "uid-g", "RdmaLimitReached")
    assert not warnings(say(made, RdmaUsed("a", (used("p", 8, 9),)), now=10.0))
    assert not warnings(say(made, RdmaUsed("a", (used("p", 7),)), now=15.0))
    assert not warnings(say(made, RdmaUsed("a", (used("p", 8),)), now=20.0))
    assert not warnings(say(made, RdmaUsed("a", (used("p", 7),)), now=700.0))
    assert len(warnings(say(made, RdmaUsed("a", (used("p", 8, 100),)), now=705.0))) == 1


def test_a_new_pod_of_the_same_name_gets_its_own_warning() -> None:
    made = scheduler()
    assert len(warnings(say(made, RdmaUsed("a", (used("p", 8),)), now=5.0))) == 1
    say(made, PodGone(made.state.uids["ns", "p"]), RdmaUsed("a", ()), now=6.0)
    say(made, replace(pod("p"), uid="another"), now=7.0)
    assert len(warnings(say(made, RdmaUsed("a", (used("p", 8),)), now=10.0))) == 1
    assert not warnings(say(made, RdmaUsed("a", (used("p", 7),)), now=15.0))
    assert not warnings(say(made, RdmaUsed("a", (used("p", 8),)), now=20.0))


def test_where_the_kernel_counts_refusals_these_are_what_counts() -> None:
    made = scheduler()
    assert not warnings(say(made, RdmaUsed("a", (used("p", 8, failures=0),))))
    decisions = warnings(say(made, RdmaUsed("a", (used("p", 8, failures=2),)), now=5.0))
    assert decisions[0].endswith("on NIC mlx5_0 of node a; more was refused 2 times")
    other = warnings(say(made, RdmaUsed("a", (used("q", 1, failures=1, card=1),)), now=6.0))
    assert other == [
        "q was refused RDMA resources on NIC mlx5_1 of node a, by its own limit or the limit of all pods"
    ]


def test_no_warning_for_a_pod_that_is_gone() -> None:
    made = scheduler()
    assert not warnings(say(made, RdmaUsed("a", (used("nobody", 8),))))
    assert not warnings(say(made, RdmaUsed("elsewhere", (used("p", 8),))))
    ended = replace(pod("p"), node="a", phase="Succeeded")
    assert not warnings(say(made, ended, RdmaUsed("a", (used("p", 8),))))
    say(made, NodeGone("a"))


def test_it_is_shown_by_node_and_by_pod() -> None:
    made = scheduler()
    say(made, RdmaUsed("a", (used("p", 7),)))
    (view,) = node_views(made)
    here = {use.pod: (use.card, use.current.hca_handle) for use in view.cards}
    assert here == {"p": ("mlx5_0", 7), "q": ("mlx5_0", -1)}
    decisions = explain(made, "ns", "q")
    assert decisions is not None
    assert {use.pod for use in decisions.cards} == {"p", "q"}
