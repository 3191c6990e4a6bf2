"""Answers to users' queries."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from central.controllers.composite import new_scheduler
from central.model.facts import (
    CoordinatorReported,
    CoordinatorSilent,
    Fact,
    NodeGone,
    NodeOffers,
    NodeSilent,
    QueueSeen,
)
from central.model.gpu_count import GpuCount
from central.scheduler.cycle import schedule_once
from central.scheduler.quarantine import SetAsideKey
from central.scheduler.scheduler import Scheduler
from central.server.grpc.query_service import NodeView
from central.server.queries import ClusterQueries, _every_node, explain, node_views, queue_tenants
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from protos.topology import RdmaLimit, RdmaUse
from tests.central import factories
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic


def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        factories.node("a", rack="r1", block="b1"),
        factories.node("b", rack="r1", block="b1", unschedulable=True),
        factories.node("c", gpus=4),
        factories.report("a", grants=(factories.grant("run-0", 0, 1),)),
        factories.report("c", factories.topology(8)),
        factories.gang("run", 2),
        factories.pod("run-0", 2, "run", node="a", phase="Running"),
        factories.pod("run-1", 2, "run"),
        factories.gang("big", 3),
        *(factories.pod(f"big-{rank}", 8, "big") for rank in range(3)),
        factories.pod("other", 1, node="a", ours=False, phase="Running"),
    ]
    schedule_once(made, facts, 0.0)
    return made


def test_a_node_with_its_holders_and_its_trouble() -> None:
    made = scheduler()
    a, b, c = node_views(made)
    assert (a.domains, a.gpus_allocatable, a.trouble) == (("b1", "r1"), 8, "")
    assert a.count == GpuCount(8, 5.0, 3.0, 3)
    assert [(h.pod, [*h.gpus], h.confirmed) for h in a.holders] == [
        ("run-0", [0, 1], True),
        ("run-1", [2, 3], False),
        ("other", [], False),
    ]
    assert {h.queue for h in a.holders if h.pod.startswith("run")} == {"default"}
    assert b.trouble == "cordoned; no agent has reported"
    assert c.trouble == "8 healthy GPUs, but the kubelet reports 4 allocatable"
    schedule_once(made, [NodeOffers("a", offered=False)], 0.5)
    assert node_views(made, "a")[0].trouble == "the agent or the kubelet is restarting"
    schedule_once(made, [NodeSilent("a")], 1.0)
    assert node_views(made, "a")[0].trouble == "the agent has stopped reporting"
    assert node_views(made, "nowhere") == []


def test_a_gang_by_its_name_and_by_its_members() -> None:
    made = scheduler()
    by_gang = explain(made, "ns", "run")
    assert by_gang is not None
    assert by_gang == explain(made, "ns", "run-1")
    assert (by_gang.phase, by_gang.reason) == (
        "Running",
        "2 of 2 pods placed in one island of node a",
    )
    assert [(pod.name, pod.node, pod.confirmed) for pod in by_gang.pods] == [
        ("run-0", "a", True),
        ("run-1", "a", False),
    ]
    waiting = explain(made, "ns", "big")
    assert waiting is not None
    assert waiting.phase == "Pending"
    assert waiting.reason.startswith("needs 3 pods x 8 GPUs; the cluster fits 0")


def test_a_gang_by_the_job_that_made_it() -> None:
    made = scheduler()
    other: list[Fact] = [
        factories.gang("sweep-5d0c", 2, owner="job/sweep"),
        *(factories.pod(f"sweep-w-{rank}", 8, "sweep-5d0c") for rank in range(2)),
    ]
    schedule_once(made, other, 1.0)
    for name in ("sweep", "job/sweep", "Job/sweep"):
        found = explain(made, "ns", name)
        assert found is not None
        assert (found.name, found.phase, len(found.pods)) == ("sweep", "Pending", 2)
    assert explain(made, "ns", "weep") is None


def test_pods_of_others_and_what_there_is_not() -> None:
    made = scheduler()
    other = explain(made, "ns", "other")
    assert other is not None
    assert other.reason == "pod of another scheduler, on node a"
    assert explain(made, "ns", "nothing") is None


def test_a_gang_that_waits_for_its_queues_share() -> None:
    made = scheduler()
    short: list[Fact] = [QueueSeen("q"), factories.gang("big", 3, queue="q")]
    schedule_once(made, short, 1.0)
    found = explain(made, "ns", "big")
    assert found is not None
    assert found.queue.startswith("q (uses 0 of 7 GPUs of its fair share; it may not reclaim")
    running = explain(made, "ns", "run")
    assert running is not None
    assert running.queue == "default"


def test_slices_and_who_holds_them() -> None:
    made = new_scheduler(factories.LEVELS)
    pods = [
        factories.slicer(factories.pod(name, node="a", phase="Running"), 1) for name in ("p", "q")
    ]
    truth = (factories.grant_slices("p", 1), factories.grant_slices("q", 7))
    report = factories.report("a", factories.sliced(factories.topology(2), 3), 1, truth)
    schedule_once(made, [factories.node("a", gpus=2, slices=3), report, *pods], 0.0)
    (view,) = node_views(made)
    assert (view.gpus_allocatable, view.slices_used) == (2, 2)
    assert (view.count.gpus, round(view.count.used, 2)) == (3, 0.29)
    assert view.trouble == ""
    held = {holder.pod: ([*holder.slices], holder.confirmed) for holder in view.holders}
    assert held["p"] == ([pb.HeldSlice(uuid="MIG-1", profile="1g.5gb", gpu=2)], True)
    assert held["q"] == ([pb.HeldSlice(uuid="MIG-7")], True)
    found = explain(made, "ns", "p")
    assert found is not None
    assert [*found.pods[0].slices] == [pb.HeldSlice(uuid="MIG-1", profile="1g.5gb", gpu=2)]


def test_every_node_is_viewed_in_slices() -> None:
    """Between two of them the loop may run a cycle, in which a node goes."""
    made = scheduler()
    steps = _every_node(made)
    next(steps)
    schedule_once(made, [NodeGone("c")], 1.0)
    views = None
    while views is None:
        try:
            next(steps)
        except StopIteration as end:
            views = end.value
    assert [view.name for view in views] == ["a", "b"]
    asked: list[object] = []

    class Counting:
        def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 0.0) -> Any:
            asked.append(question)
            return question(made)

    queries = ClusterQueries(Counting())
    assert [view.name for view in queries.node_views("")] == ["a", "b"]
    assert [view.name for view in queries.node_views("b")] == ["b"]


def test_the_place_in_the_queue() -> None:
    made = scheduler()
    later: list[Fact] = [
        factories.gang("later", 3),
        *(factories.pod(f"later-{at}", 8, "later") for at in range(3)),
    ]
    schedule_once(made, later, 1.0)
    found = {name: explain(made, "ns", name) for name in ("big", "later", "run")}
    standing = {
        name: (each.place, each.pending) for name, each in found.items() if each is not None
    }
    assert standing == {"big": (1, 2), "later": (2, 2), "run": (0, 0)}


def test_an_elastic_job_says_why_it_is_not_larger() -> None:
    api = Api(nodes=1)
    api.apply(elastic())
    api.settle()
    found = explain(api.cluster, "ns", "j")
    assert found is not None
    assert found.size.startswith("8 of 2 to 12 members")
    member = explain(api.cluster, "ns", next(iter(api.pods())))
    assert member is not None
    assert member.size == found.size  # by a pod of it, too


def test_an_elastic_job_says_what_its_coordinator_reports() -> None:
    api = Api(nodes=1)
    api.apply(elastic())
    api.settle()
    uid = api.job()["metadata"]["uid"]

    def said(**report: Any) -> str:
        api.tell(CoordinatorReported("ns", "j", uid, 1, (0, 1), **report))
        api.step()
        found = explain(api.cluster, "ns", "j")
        assert found is not None
        assert found.size.startswith("8 of 2 to 12 members")
        return found.size

    assert "checkpoint" not in explain(api.cluster, "ns", "j").size  # type: ignore[union-attr]  # it is there
    assert said().endswith("; no complete checkpoint")
    saved = {"checkpoint": api.now - 40.0, "checkpoint_name": "ckpt-9-1"}
    assert said(**saved).endswith("; checkpoint ckpt-9-1 is 41s old")
    ahead = {**saved, "checkpoint": api.now + 40.0}  # by another scheduler's clock
    assert said(**ahead).endswith("; checkpoint ckpt-9-1 is 0s old")
    assert said(restored="ckpt-8-1 in generation 3").endswith("loaded ckpt-8-1 in generation 3")
    why = "queue q: task 7 (a): torn"
    assert said(set_aside=1, set_aside_why=why).endswith(
        f"; 1 task is set aside, the latest: {why}"
    )
    assert "; 30 tasks are set aside, the latest: xxx" in said(
        set_aside=30, set_aside_why="x" * 900
    )
    assert len(said(set_aside=30, set_aside_why="y" * 900)) < 800
    api.tell(CoordinatorSilent("ns", "j", uid))
    api.step()
    assert "set aside" not in explain(api.cluster, "ns", "j").size  # type: ignore[union-attr]  # it is there


def test_tenants_of_a_queue_and_their_limits() -> None:
    """ann has two gangs in two namespaces; a gang without a user counts for its namespace. Pods request 100m of CPU."""
    made = new_scheduler(factories.LEVELS)
    limits = {"user_gangs": 3, "user_amounts": ((GPU, 4),), "namespace_amounts": (("cpu", 8000),)}
    pods = [
        factories.pod("a", 1, queue="q", cpu=500, user="ann"),
        replace(factories.pod("b", 2, queue="q", user="ann"), namespace="other"),
        factories.pod("c", 1, queue="q"),
    ]
    facts: list[Fact] = [factories.node("n"), factories.report("n"), QueueSeen("q", **limits)]  # type: ignore[arg-type]
    schedule_once(made, [*facts, *pods], 0.0)
    found, namespaces = queue_tenants(made, "q")
    assert (found.per_user.running_gangs, dict(found.per_user.resources)) == (3, {GPU: 4.0})
    assert not found.per_namespace.HasField("running_gangs")
    assert found.per_namespace.resources == {"cpu": 8.0}
    unnamed = "namespace ns (pods without a user)"
    assert namespaces == ["", "ns", "ns", "other"]
    assert [
        (each.is_user, each.name, each.running_gangs, dict(each.resources))
        for each in found.tenants
    ] == [
        (True, "ann", 2, {GPU: 3.0}),
        (True, unnamed, 1, {GPU: 1.0}),
        (False, "ns", 2, {"cpu": 0.6}),
        (False, "other", 1, {"cpu": 0.1}),
    ]
    assert not queue_tenants(made, "nothing")[0].found
    only_users = QueueSeen("q", **{**limits, "namespace_amounts": ()})  # type: ignore[arg-type]
    schedule_once(made, [only_users], 1.0)
    found, _ = queue_tenants(made, "q")
    assert found.HasField("per_user")
    assert not found.HasField("per_namespace")
    assert all(each.is_user for each in found.tenants)


def test_nics_of_a_pod_with_their_usage_where_it_is_known() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(
        made,
        [
            factories.node("a"),
            factories.report("a", factories.carded(factories.topology(8), 100)),
            factories.wishing(factories.pod("p", 1), 10),
        ],
        0.0,
    )

    def cards() -> list[RdmaUse]:
        found, (view,) = explain(made, "ns", "p"), node_views(made)
        assert found is not None
        assert list(found.cards) == list(view.cards)
        return list(view.cards)

    (unknown,) = cards()
    assert unknown == RdmaUse("ns", "p", unknown.card, RdmaLimit(), RdmaLimit())
    use = RdmaUse("ns", "p", unknown.card, RdmaLimit(3, 4), RdmaLimit(10, -1), 2)
    made.state.nodes["a"].rdma_use = (replace(use, pod="another"), use)
    assert cards() == [use]


def test_what_a_bug_keeps_out_is_named() -> None:
    made = scheduler()
    why = TypeError("a bug")
    made.quarantine.set_aside(SetAsideKey("Pod", "u"), ("team", "lost"), why, None, 0.0)
    found = explain(made, "team", "lost")
    assert found is not None
    assert (found.namespace, found.name, found.pods) == ("team", "lost", ())
    assert "a bug" in found.reason
    assert explain(made, "lost", "team") is None


def test_a_node_that_cannot_be_shown_does_not_hide_the_others() -> None:
    made = scheduler()
    made.state.nodes["b"].pods = None  # type: ignore[assignment]  # what a bug leaves
    a, b, c = node_views(made)
    assert (a.gpus_allocatable, c.gpus_allocatable) == (8, 4)
    assert b == NodeView("b", trouble=b.trouble)
    assert b.trouble.startswith("can't be shown (a bug of the scheduler): ")
