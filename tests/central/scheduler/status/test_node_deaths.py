"""Nodes on which gangs of several owners died are the last choice of gangs of several nodes: as stories."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, PodGone, PodSeen
from central.scheduler import memory
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.status.node_deaths import OWNERS_MOST
from central.server.queries import node_views
from central.server.stats.node_rows import problem_of
from tests.central import factories

HOUR = 3600.0
NODES = tuple(f"n{i}" for i in range(8))


def scheduler(*nodes: Fact) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [*nodes] or [factories.node(name, rack="r") for name in NODES], 0.0)
    return made


def members(owner: str, nodes: str | tuple[str, ...], job: str = "j") -> list[PodSeen]:
    """Pods of a gang of the owner that run there, or wait where the node is empty."""
    return [
        replace(
            factories.pod(f"{job}-{i}", 8, job),
            uid=f"{owner}-{job}-{i}",
            namespace=owner,
            node=node,
            phase="Running" if node else "Pending",
            gang_min=len(nodes),
        )
        for i, node in enumerate(nodes)
    ]


def dies(
    made: Scheduler, owner: str, first: str, *others: str, now: float, job: str = "j"
) -> list[Fact]:
    """The gang's member on the first node fails, and those on the others a little later, which are told earlier."""
    pods = members(owner, (first, *others), job)
    schedule_once(made, [*pods], now)
    for delay, pod in reversed([*enumerate(pods)]):
        ended = replace(pod, phase="Failed", ended=now + 1.0 + delay)
        schedule_once(made, [ended], now + 10.0)
    schedule_once(made, [PodGone(pod.uid) for pod in pods], now + 11.0)
    return []


def placed(made: Scheduler, owner: str, count: int, now: float, job: str = "new") -> set[str]:
    pods = members(owner, ("",) * count, job)
    bound = {d.node for d in schedule_once(made, [*pods], now) if isinstance(d, Bind)}
    schedule_once(made, [PodGone(pod.uid) for pod in pods], now + 1.0)
    return bound


def told(made: Scheduler) -> dict[str, str]:
    names = made.state.nodes
    return {name: why for name in names if "died" in (why := problem_of(names[name], made.state))}


def test_large_gangs_avoid_a_node_on_which_three_owners_died() -> None:
    made = scheduler()
    assert placed(made, "x", 2, 1.0) == {"n0", "n1"}
    for number, owner in enumerate(("a", "b", "c")):
        assert not told(made)
        dies(made, owner, "n0", "n1", "n2", now=100.0 * (number + 1))
        schedule_once(made, [], 100.0 * (number + 1) + 20.0)
    assert list(told(made)) == ["n0"]
    assert "gangs of 3 namespaces died here within a day" in told(made)["n0"]
    (shown,) = [view for view in node_views(made) if view.name == "n0"]
    assert "gangs of 3 namespaces" in shown.trouble
    assert placed(made, "x", 2, 500.0) == {"n1", "n2"}
    assert placed(made, "x", 7, 510.0) == {*NODES} - {"n0"}
    assert placed(made, "x", 8, 520.0) == {*NODES}, "a last choice is still one"
    assert placed(made, "x", 1, 530.0) == {"n0"}, "a gang of one node may use it"
    assert placed(made, "x", 2, 25 * HOUR) == {"n0", "n1"}, "forgotten after a day"


def test_the_closest_domain_comes_before_a_better_node() -> None:
    made = scheduler(
        *(factories.node(f"{rack}{i}", rack=rack) for rack in "pq" for i in range(2)),
        factories.node("s0", rack="s"),
    )
    for number, owner in enumerate(("a", "b", "c")):
        dies(made, owner, "p0", now=100.0 * (number + 1))
    assert placed(made, "x", 2, 500.0) == {"q0", "q1"}, "another rack is as close"
    schedule_once(made, [*members("y", ("q0",), "busy")], 510.0)
    assert placed(made, "x", 2, 520.0) == {"p0", "p1"}


def test_a_gang_that_starts_again_avoids_the_node_on_which_it_failed() -> None:
    """Also one of a single node. No other gang does, nor does it where only this node is as close."""
    made = scheduler()
    dies(made, "a", "n0", now=100.0)
    dies(made, "b", "n1", "n0", now=100.0)
    assert placed(made, "a", 1, 200.0) == {"n0"}, "another gang of the namespace"
    assert placed(made, "a", 1, 210.0, job="j") == {"n1"}
    assert placed(made, "b", 2, 220.0, job="j") == {"n0", "n2"}
    assert placed(made, "a", 8, 230.0, job="j") == {*NODES}
    assert not told(made), "it blames the node before nobody else"
    assert placed(made, "a", 1, 25 * HOUR, job="j") == {"n0"}, "forgotten after a day"


def test_a_member_that_starts_again_stays_beside_the_others() -> None:
    """On another node of their rack, but on no other rack's."""
    racks = [factories.node(f"{rack}{i}", rack=rack) for rack in "pq" for i in range(3)]
    made = scheduler(*racks)
    running = members("a", ("p0", "p1"), "j")
    schedule_once(made, [*running], 100.0)
    schedule_once(made, [replace(running[0], phase="Failed", ended=101.0)], 102.0)
    schedule_once(made, [PodGone(running[0].uid)], 103.0)
    again = replace(running[0], uid="again", node="", phase="Pending")
    (bound,) = [d for d in schedule_once(made, [again], 104.0) if isinstance(d, Bind)]
    assert bound.node == "p2"

    made = scheduler(*[node for node in racks if node.name != "p2"])
    schedule_once(made, [*running], 100.0)
    schedule_once(made, [replace(running[0], phase="Failed", ended=101.0)], 102.0)
    schedule_once(made, [PodGone(running[0].uid)], 103.0)
    (bound,) = [d for d in schedule_once(made, [again], 104.0) if isinstance(d, Bind)]
    assert bound.node == "p0"


@pytest.mark.parametrize("reason", ["one owner", "everywhere", "fault", "evicted", "no GPU"])
def test_other_deaths_blame_no_node(reason: str) -> None:
    made = scheduler()
    owners = ("a", "a", "a") if reason == "one owner" else ("a", "b", "c")
    for number, owner in enumerate(owners):
        now = 100.0 * (number + 1)
        if reason == "evicted":
            pods = [replace(pod, deleting=True) for pod in members(owner, ("n0",))]
        elif reason == "no GPU":
            pods = [replace(pod, spec=factories.spec(0)) for pod in members(owner, ("n0",))]
        else:
            pods = members(owner, ("n0",), f"j{number}")
        if reason == "fault":
            broken = factories.topology(8)
            gpus = (replace(broken.gpus[0], healthy=False), *broken.gpus[1:])
            schedule_once(made, [factories.report("n0", replace(broken, gpus=gpus), number)], now)
        schedule_once(made, [*pods], now)
        schedule_once(made, [replace(p, phase="Failed", ended=now + 1.0) for p in pods], now + 2.0)
        schedule_once(made, [PodGone(pod.uid) for pod in pods], now + 3.0)
        for other in ("n1", "n2") if reason == "everywhere" else ():
            dies(made, owner, other, now=now + 10.0, job=f"k{other}")
    schedule_once(made, [], 500.0)
    assert not told(made)


@pytest.mark.long
def test_one_tenant_with_many_namespaces_makes_few_nodes_a_last_choice() -> None:
    made = scheduler()
    for number in range(OWNERS_MOST + 20):
        owner = f"ns-{number}"
        schedule_once(made, [], 1.0 + number)
        for pod in members(owner, (NODES[number % 8],)):
            made.device_usage.deaths.observe(made.state, replace(pod, phase="Failed"))
    schedule_once(made, [], 2_000.0)
    assert len(told(made)) == 1, "one of 16 nodes, and one at least"
    assert len(made.device_usage.deaths.by_owner) == OWNERS_MOST


def test_a_state_that_is_built_again_remembers_them() -> None:
    made = scheduler()
    for number, owner in enumerate(("a", "b", "c")):
        dies(made, owner, "n0", now=100.0 * (number + 1))
    fresh = made.emptied()
    schedule_once(fresh, [factories.node(name, rack="r") for name in NODES], 500.0)
    memory.restore_counts(fresh, memory.remember(made))
    assert placed(fresh, "x", 2, 510.0) == {"n1", "n2"}
