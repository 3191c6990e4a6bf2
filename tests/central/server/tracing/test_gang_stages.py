"""The stages of gangs, from the scheduler's own cycles."""

from collections.abc import Sequence
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import BindDone, BindFailed, Fact, GangGone, GangSeen, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.server.tracing import gang_stages
from central.server.tracing.gang_stages import GangStages, Stage
from tests.central import factories

UID = "0b1e7a52-6d0b-4c6e-9a43-0f5a3a8f6f10"


class Cluster:
    """A scheduler and what is followed of its gangs. Nothing is bound but by a fact of the test."""

    def __init__(self) -> None:
        self.scheduler = new_scheduler(factories.LEVELS)
        self.stages: list[Stage] = []
        self.followed = GangStages(self.scheduler, self.stages.append)

    def cycle(self, now: float, *facts: Fact) -> Sequence[Decision]:
        decisions = schedule_once(self.scheduler, facts, now)
        self.followed.observe(facts, decisions)
        return decisions

    def names(self) -> list[str]:
        return [stage.name for stage in self.stages]


def gang(created: float = 50.0, **other: object) -> GangSeen:
    return GangSeen("ns", "g", 2, uid=UID, created=created, **other)  # type: ignore[arg-type]  # a test's shorthand


def pods(gpus: int = 8, created: float = 60.0) -> list[PodSeen]:
    return [factories.pod(f"g-{at}", gpus, "g", created=created) for at in range(2)]


def binds(decisions: Sequence[Decision]) -> list[Bind]:
    return [each for each in decisions if isinstance(each, Bind)]


def running(pod: PodSeen, node: str) -> PodSeen:
    return replace(pod, node=node, phase="Running")


def test_from_created_to_running() -> None:
    cluster, members = Cluster(), pods()
    cluster.cycle(100.0, factories.node("a"), gang(), *members)
    assert not cluster.stages, "one node is too small: it waits"
    first, second = binds(cluster.cycle(200.0, factories.node("b")))
    (placed,) = cluster.stages
    assert (placed.name, placed.began, placed.ended) == ("placement", 50.0, 200.0)
    assert (placed.uid, placed.gang, placed.namespace, placed.pods) == (UID, "g", "ns", 2)
    (waits,) = placed.events
    assert waits.at == 100.0
    assert waits.text.startswith("needs 2 pods x 8 GPUs")
    cluster.cycle(201.0, BindDone(first.pod, first.node))
    assert len(cluster.stages) == 1
    cluster.cycle(203.0, BindDone(second.pod, second.node))
    bound = cluster.stages[1]
    assert (bound.name, bound.began, bound.ended) == ("binding", 200.0, 203.0)
    assert (bound.nodes, bound.node_count) == (("a", "b"), 2)
    cluster.cycle(210.0, running(members[0], first.node))
    assert len(cluster.stages) == 2
    cluster.cycle(215.0, running(members[1], second.node))
    started, root = cluster.stages[2:]
    assert (started.name, started.began, started.ended) == ("startup", 203.0, 215.0)
    assert (root.name, root.began, root.ended) == ("gang", 50.0, 215.0)
    assert root.nodes == ("a", "b")
    cluster.cycle(300.0, replace(running(members[0], first.node), phase="Succeeded"))
    assert len(cluster.stages) == 4, "what follows is no start"


def test_a_gang_that_is_admitted_before_its_pods_exist() -> None:
    cluster, members = Cluster(), pods()
    cluster.cycle(100.0, factories.node("a"), factories.node("b"), gang())
    (admitted,) = cluster.stages
    assert (admitted.name, admitted.began, admitted.ended) == ("admission", 50.0, 100.0)
    cluster.cycle(105.0, *members)
    placed = cluster.stages[1]
    assert (placed.name, placed.began, placed.ended) == ("placement", 100.0, 105.0)
    assert [event.name for event in placed.events] == ["waiting"]


def test_the_pods_may_come_before_their_podgroup() -> None:
    cluster, members = Cluster(), pods()
    cluster.cycle(100.0, factories.node("a"), factories.node("b"), *members)
    cluster.cycle(100.1, gang())
    assert cluster.names() == ["placement"]
    (placed,) = cluster.stages
    assert (placed.uid, placed.began) == (UID, 50.0)


def test_a_podgroup_that_is_made_again_changes_no_trace_that_has_begun() -> None:
    cluster = Cluster()
    cluster.cycle(100.0, factories.node("a"), factories.node("b"), gang())
    cluster.cycle(101.0, replace(gang(created=20.0), uid="another"))
    cluster.cycle(105.0, *pods())
    assert cluster.names() == ["admission", "placement"]
    assert [(each.uid, each.began) for each in cluster.stages] == [(UID, 50.0), (UID, 100.0)]


def test_the_watch_may_show_pods_before_their_bindings_are_answered() -> None:
    cluster, members = Cluster(), pods()
    made = cluster.cycle(100.0, factories.node("a"), factories.node("b"), gang(), *members)
    on = {each.pod: each.node for each in binds(made)}
    cluster.cycle(101.0, *(running(pod, on[pod.uid]) for pod in members))
    assert cluster.names() == ["placement", "binding", "startup", "gang"]
    cluster.cycle(102.0, *(BindDone(uid, node) for uid, node in on.items()))
    assert len(cluster.stages) == 4


def test_a_binding_that_fails_is_a_placement_again() -> None:
    cluster = Cluster()
    pod = factories.pod("one", 8, created=90.0)
    (bind,) = binds(cluster.cycle(100.0, factories.node("a"), pod))
    cluster.cycle(101.0, BindFailed(bind.pod, bind.node, "conflict"))
    failed = cluster.stages[1]
    assert (failed.name, failed.error) == ("binding", "binding to node a failed: conflict")
    cluster.cycle(130.0)
    cluster.cycle(131.0, running(pod, "a"))
    again = ["placement", "binding", "startup", "gang"]
    assert cluster.names() == ["placement", "binding", *again]
    assert cluster.stages[2].began == 101.0
    assert cluster.stages[-1].uid == "uid-one"


def test_a_gang_that_is_deleted_while_it_waits() -> None:
    cluster, members = Cluster(), pods()
    cluster.cycle(100.0, factories.node("a"), gang(), *members)
    cluster.cycle(120.0, GangGone("ns", "g"), *(PodGone(pod.uid) for pod in members))
    cluster.cycle(126.0)
    waited, root = cluster.stages
    assert (waited.name, root.name) == ("placement", "gang")
    assert waited.error == root.error == "deleted before it ran"


def test_the_next_scheduler_goes_on() -> None:
    """One that places it, the next one that sees it run; a third has nothing to say."""
    members = pods()
    base: list[Fact] = [factories.node("a"), factories.node("b"), gang(), *members]
    first, second, third = Cluster(), Cluster(), Cluster()
    on = {each.pod: each.node for each in binds(first.cycle(100.0, *base))}
    bound = [replace(pod, node=on[pod.uid]) for pod in members]
    second.cycle(110.0, *base[:3], *bound)
    second.cycle(120.0, *(running(pod, pod.node) for pod in bound))
    assert second.names() == ["startup", "gang"]
    startup, root = second.stages
    assert (startup.began, startup.events[0].name) == (110.0, "taken over")
    assert (root.uid, root.began, root.ended) == (first.stages[0].uid, 50.0, 120.0)
    third.cycle(130.0, *base[:3], *(running(pod, pod.node) for pod in bound))
    assert third.stages == []


def test_a_second_start_is_a_restart() -> None:
    cluster = Cluster()
    base: list[Fact] = [factories.node("a"), factories.node("b"), gang()]
    for number, now in enumerate((100.0, 200.0)):
        members = [replace(pod, uid=f"{pod.uid}-{number}") for pod in pods(created=now)]
        on = {each.pod: each.node for each in binds(cluster.cycle(now, *base, *members))}
        assert len(on) == 2
        cluster.cycle(now + 5, *(running(pod, on[pod.uid]) for pod in members))
        cluster.cycle(now + 50, *(PodGone(pod.uid) for pod in members))
        base = []
    roots = [stage for stage in cluster.stages if stage.name in ("gang", "restart")]
    assert [(root.name, root.number) for root in roots] == [("gang", 0), ("restart", 1)]
    assert roots[1].began >= 150.0


def test_growth_is_no_start() -> None:
    cluster = Cluster()
    pod = factories.pod("g-0", 8, "g", gang_min=1)
    cluster.cycle(100.0, factories.node("a"), factories.node("b"), pod)
    cluster.cycle(
        101.0, running(pod, cluster.stages[0].nodes[0] if cluster.stages[0].nodes else "a")
    )
    count = len(cluster.stages)
    more = factories.pod("g-1", 8, "g", gang_min=1)
    (bind,) = binds(cluster.cycle(110.0, more))
    cluster.cycle(111.0, running(more, bind.node))
    assert cluster.names()[:4] == ["placement", "binding", "startup", "gang"]
    assert len(cluster.stages) == count == 4


def test_causes_are_bounded() -> None:
    cluster = Cluster()
    start = gang_stages._Start("u", 0, 0.0, "placement", 0.0, "q", 1)
    for at in range(gang_stages.EVENTS_MOST + 10):
        start.note("waiting", float(at), f"{at}" * 5000)
    assert len(start.events) == gang_stages.EVENTS_MOST
    assert start.events_dropped == 10
    assert start.events[-1].text.startswith(f"{gang_stages.EVENTS_MOST + 9}")
    assert all(len(each.text) <= gang_stages.TEXT_MOST for each in start.events)
    assert cluster.followed.ignored == 0
