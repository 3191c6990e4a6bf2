"""Would a node help? Each row of the table of causes, from facts to what autoscalers read.

Their rules, as of August 2026, with the sources (a pod counts only while it has no node):

    Karpenter 1.14, pkg/utils/pod/scheduling.go, IsProvisionable: a condition PodScheduled with the reason
        Unschedulable, and no nominatedNodeName
    cluster-autoscaler, pkg/utils/kubernetes/listers.go, ArrangePodsBySchedulability: with a nominatedNodeName the pod
        counts as being on that node; else PodScheduled is False with the reason Unschedulable
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from central.model import pending_causes
from central.model.decisions import Evict, UpdateGangStatus
from central.model.facts import (
    BindFailed,
    DeviceClassSeen,
    Fact,
    NodeOffers,
    PodGone,
    PodSeen,
    QueueSeen,
)
from central.model.pending_causes import CAUSES, UNSCHEDULABLE
from central.scheduler import pending_cause
from protos.names import GPU, NODE, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


class Watched(World):
    """With what each pod's status says, as the writer has it."""

    def __init__(self, *nodes: Fact, **other: float) -> None:
        self.conditions: dict[str, tuple[str, str]] = {}  # reason and nominatedNodeName
        super().__init__(*nodes, **other)

    def step(self, now: float, *facts: Fact) -> list[str]:
        before = len(self.decisions) if hasattr(self, "decisions") else 0
        bound = super().step(now, *facts)
        for each in self.decisions[before:]:
            if isinstance(each, UpdateGangStatus) and CAUSES.get(each.cause):
                nodes = dict(each.nominated)
                reason = CAUSES[each.cause]
                self.conditions |= {name: (reason, nodes.get(name, "")) for name in each.pods}
        return bound

    def cause(self, gang: str) -> str:
        found = [g for g in self.cluster.state.gangs.values() if g.name == gang]
        return pending_cause.cause_of(self.cluster, found[0])

    def bought(self) -> list[str]:
        """Pods for which an autoscaler adds nodes."""
        waiting = {uid for uid, pod in self.cluster.state.pods.items() if not pod.node}
        names = {self.cluster.state.pods[uid].seen.name for uid in waiting}
        told = self.conditions.items()
        return sorted(
            n for n, (why, node) in told if n in names and why == UNSCHEDULABLE and not node
        )


def nodes(*names: str, **other: object) -> list[Fact]:
    return [factories.node(name, rack="r", **other) for name in names]  # type: ignore[arg-type]  # a test's shorthand


def big(name: str = "g", pods: int = 4, **other: object) -> list[Fact]:
    return job(name, pods, created=5.0, **other)  # type: ignore[arg-type]  # a test's shorthand


def with_specs(facts: Sequence[Fact], **changes: object) -> list[Fact]:
    return [
        replace(f, spec=replace(f.spec, **changes)) if isinstance(f, PodSeen) else f  # type: ignore[arg-type]  # a test's shorthand
        for f in facts
    ]


def with_pods(facts: Sequence[Fact], **changes: object) -> list[Fact]:
    return [replace(f, **changes) if isinstance(f, PodSeen) else f for f in facts]  # type: ignore[arg-type]  # a test's shorthand


def queue(**fields: object) -> QueueSeen:
    return QueueSeen("q", **fields)  # type: ignore[arg-type]  # a test's shorthand


Steps = list[Sequence[Fact]]
FULL = job("first", 1, gpus=8)
ROWS: dict[str, tuple[str, Steps]] = {
    "an empty cluster": ("capacity", [big()]),
    "a full one": ("capacity", [nodes("a"), FULL, big(pods=1)]),
    "a full one whose job has a run time": (
        "place-reserved",
        [nodes("a"), job("first", 1, gpus=8, runs_for_s=600.0), big(pods=1)],
    ),
    "larger than the cluster": ("never", [nodes("a", "b"), big()]),
    "no node has the label of the level": (
        "never",
        [[factories.node("a")], big(topology_required=RACK)],
    ),
    "nodes that a selector excludes": (
        "never",
        [nodes("a"), with_specs(big(pods=1), node_selector=(("pool", "new"),))],
    ),
    "guaranteed to another queue": (
        "reserved",
        [
            [*nodes("a"), QueueSeen("q"), QueueSeen("o", guarantee=((GPU, 8),))],
            big(pods=1, queue="q"),
        ],
    ),
    "behind a reservation": (
        "reserved",
        [
            nodes("a", "b"),
            job("first", 1, gpus=8, runs_for_s=600.0),
            job("head", 2, created=1.0),
            big(pods=1, runs_for_s=9000.0),
        ],
    ),
    "at its queue's capability": (
        "quota",
        [
            [*nodes("a", "b"), queue(capability=((GPU, 8),))],
            job("first", 1, gpus=8, queue="q"),
            big(pods=1, queue="q"),
        ],
    ),
    "beyond its queue's capability": (
        "invalid",
        [[*nodes("a"), queue(capability=((GPU, 8),))], big(queue="q")],
    ),
    "a closed queue": ("quota", [[*nodes("a"), queue(closed=True)], big(pods=1, queue="q")]),
    "no such queue": ("quota", [[*nodes("a"), queue()], big(pods=1, queue="typo")]),
    "behind another of a fifo queue": (
        "quota",
        [[*nodes("a"), queue(fifo=True)], job("head", 4, queue="q"), big(pods=1, queue="q")],
    ),
    "too few pods": ("pods-missing", [big()[:-1]]),
    "a pod is gated": ("gated", [[*big()[:-1], *with_pods(big()[-1:], gated=True)]]),
    "an unknown level": ("invalid", [nodes("a"), big(pods=1, topology_required="planet")]),
    "an unsupported field": (
        "invalid",
        [nodes("a"), with_specs(big(pods=1), unsupported="spec.x: no")],
    ),
    "an invalid annotation of the PodGroup": ("invalid", [nodes("a"), big(error="annotation: no")]),
    "no PodGroup": ("invalid", [nodes("a"), big()[1:]]),
    "two rules that exclude each other": (
        "invalid",
        [
            nodes("a", "b"),
            with_pods(
                with_specs(
                    big(pods=2, gpus=1, topology_required=NODE),
                    rules=factories.apart("g", "kubernetes.io/hostname"),
                ),
                labels=(("app", "g"),),
            ),
        ],
    ),
    "with the rest on a full node": (
        "confined",
        [nodes("a"), job("g", 1, least=1), [*big(pods=2, topology_required=NODE, least=2)]],
    ),
    "a kubelet restarts": ("retry", [[*nodes("a"), NodeOffers("a", False)], big(pods=1)]),
    "a DeviceClass serves its GPUs": (
        "capacity",
        [[*nodes("a", gpus=0), DeviceClassSeen("gpu.example", GPU)], big(pods=1)],
    ),
}


def played(steps: Steps) -> Watched:
    world = Watched()
    for at, facts in enumerate(steps):
        world.step(float(at), *facts)
        world.step(at + 0.5)
    return world


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    cause, steps = ROWS[row]
    world = played(steps)
    assert (world.cause("g"), row) == (cause, row)
    waiting = sorted(
        pod.seen.name
        for pod in world.cluster.state.pods.values()
        if pod.seen.gang == "g" and not pod.node
    )
    bought = [name for name in world.bought() if name.startswith("g-")]
    assert bought == (waiting if CAUSES[cause] == UNSCHEDULABLE else []), world.told.get("g")
    gated = {pod.seen.name for pod in world.cluster.state.pods.values() if pod.seen.gated}
    told = {name for name in world.conditions if name.startswith("g-")}
    assert told == {*waiting} - gated, "each pending pod but those that scheduling gates hold"


def test_every_cause_has_a_row() -> None:
    """The others are below, in test_failed_starts.py and in controllers/test_command.py."""
    below = {"preempted", "set-aside", "new", "no-start", "suspended"}
    assert {cause for cause, _ in ROWS.values()} | below == {*CAUSES}


def test_a_gang_of_four_times_eight_wants_four_nodes_in_one_step() -> None:
    world = Watched()
    world.step(0.0, *big())
    assert world.bought() == ["g-0", "g-1", "g-2", "g-3"]
    (gang,) = world.cluster.state.gangs.values()
    ((count, each),) = pending_cause.wanted_nodes(world.cluster, gang)
    assert (count, dict(each)[GPU]) == (4, 8)
    world.step(1.0, *nodes("a", "b", "c", "d"))
    assert pending_cause.wanted_nodes(world.cluster, gang) == []
    assert world.cause("g") == ""


@pytest.mark.parametrize("row", ["at its queue's capability", "a pod is gated", "too few pods"])
def test_others_want_none(row: str) -> None:
    world = played(ROWS[row][1])
    gang = next(g for g in world.cluster.state.gangs.values() if g.name == "g")
    assert pending_cause.wanted_nodes(world.cluster, gang) == []


def test_the_pods_of_a_gang_whose_victims_leave_are_nominated() -> None:
    world = Watched(*nodes("a", "b"))
    world.step(0.0, *job("low", 2, gpus=8))
    world.step(1.0, *big(pods=2, priority=5))
    world.step(2.0)
    assert world.leaving
    assert world.cause("g") == "place-reserved"
    assert sorted(world.conditions[f"g-{i}"][1] for i in range(2)) == ["a", "b"]
    assert world.bought() == []
    world.step(10.0)
    world.step(11.0)
    assert world.cause("g") == ""


class Slow(Watched):
    """Nothing is answered to evictions yet."""

    def _evict(self, decision: Evict, now: float) -> str:
        self.evicted.append(decision.name)
        return ""


def test_all_pods_of_a_large_gang_are_nominated_until_the_place_is_given_up() -> None:
    world = Watched(*nodes("a", "b"))
    world.grace_s = 1000.0
    world.step(0.0, *job("low", 2, gpus=8))
    urgent = big(pods=10, gpus=1, priority=5)
    world.step(1.0, *urgent)
    world.step(2.0)
    told = [world.conditions[f"g-{number}"] for number in range(10)]
    assert {why for why, _ in told} == {"SchedulerError"}
    assert all(node for _, node in told)
    world.step(3.0, *with_pods(urgent, told=("SchedulerError", "a")))
    world.step(4.0, *with_pods(urgent, told=("SchedulerError", "a"), gated=True)[-1:])
    assert world.cause("g") == "gated"
    assert {world.conditions[f"g-{number}"] for number in range(9)} == {("SchedulingGated", "")}


def test_a_gang_whose_pods_are_being_evicted_wants_none() -> None:
    world = Slow(*nodes("a"))
    low = job("low", 2, gpus=4)
    world.step(0.0, *low)
    world.step(1.0, *big(pods=1, priority=5, gpus=4))
    world.step(
        2.0, replace(next(f for f in low if isinstance(f, PodSeen)), uid="uid-new", name="low-9")
    )
    assert world.evicted
    assert world.cause("low") == "preempted"
    assert world.bought() == []


def test_all_pods_of_a_large_gang_are_told_and_told_again_when_that_changes() -> None:
    world = Watched(queue())
    world.step(0.0, *big(pods=20, queue="q"))
    assert len(world.bought()) == 20
    world.step(1.0, queue(closed=True))
    assert world.cause("g") == "quota"
    assert world.bought() == []
    assert len(world.conditions) == 20


def test_a_lost_update_is_made_good() -> None:
    """An update replaces an older one that is not written: what it does not see done it says again."""
    world = Watched(queue())
    world.step(0.0, *big(pods=20, queue="q"))
    world.conditions.clear()  # it was not written
    world.step(1.0, factories.node("a", rack="r"))  # another reason
    assert len(world.bought()) == 20


def test_a_lost_correction_is_made_good() -> None:
    world = Watched(queue())
    facts = big(pods=20, queue="q")
    world.step(0.0, *facts)
    world.step(0.5, *(with_pods(facts, told=(UNSCHEDULABLE, ""))))
    wanted = dict(world.conditions)
    world.step(1.0, queue(closed=True))
    world.conditions = wanted  # it was not written
    world.step(2.0, PodGone("uid-g-19"))  # another reason
    assert {world.conditions[f"g-{i}"][0] for i in range(19)} == {"SchedulerError"}


def test_a_condition_that_was_decided_and_taken_back_is_written() -> None:
    """The write in between may come later than what the watch shows now."""
    world = Watched(queue())
    facts = big(pods=20, queue="q")
    world.step(0.0, *facts)
    world.step(0.5, *with_pods(facts, told=(UNSCHEDULABLE, "")))
    world.step(1.0, queue(closed=True))
    world.step(2.0, queue())
    assert len(world.bought()) == 20


def test_a_refused_gang_whose_queue_is_used_up_by_another() -> None:
    """It is not tried again in the cycle, and its reason is computed again."""
    world = Watched(*nodes("a"), queue(capability=((GPU, 16),)))
    world.step(0.0, *big(pods=2, queue="q", priority=1), *job("h", 1, queue="q", created=9.0))
    assert (world.cause("h"), world.cause("g")) == ("", "quota")
    assert world.bought() == []


def test_what_another_leader_wrote_is_corrected() -> None:
    """The new one has written nothing, and the gang may not start now."""
    old = with_pods(big(pods=20, queue="q"), told=(UNSCHEDULABLE, "gone"))
    world = Watched(*nodes("a"), queue(closed=True))
    world.conditions = {f.name: f.told for f in old if isinstance(f, PodSeen)}
    world.step(0.0, *old)
    assert {why for why, _ in world.conditions.values()} == {"SchedulerError"}
    assert {node for _, node in world.conditions.values()} == {""}


def test_a_condition_that_comes_late_is_corrected() -> None:
    """Of a write that overtook the next one."""
    world = Watched(*nodes("a"), queue(closed=True))
    facts = big(pods=20, queue="q")
    world.step(0.0, *facts)
    late = next(f for f in facts if isinstance(f, PodSeen) and f.name == "g-15")
    world.conditions["g-15"] = (UNSCHEDULABLE, "")
    world.step(1.0, replace(late, told=(UNSCHEDULABLE, "")))
    assert world.conditions["g-15"] == ("SchedulerError", "")
    world.step(1.5, replace(late, told=("SchedulerError", "")))
    world.conditions["g-15"] = (UNSCHEDULABLE, "")
    world.step(1.6, replace(late, told=(UNSCHEDULABLE, "")))
    assert world.conditions["g-15"] == ("SchedulerError", ""), "again"
    before = len(world.decisions)
    world.step(2.0, replace(late, told=("SchedulerError", "")))
    world.step(3.0)
    assert not [d for d in world.decisions[before:] if isinstance(d, UpdateGangStatus)]


def test_surplus_that_waits_wants_nodes() -> None:
    world = Watched(*nodes("a"))
    world.step(0.0, *big(pods=3, least=1))
    assert (world.cause("g"), world.bought()) == ("capacity", ["g-1", "g-2"])


def test_a_failed_binding_is_tried_again() -> None:
    world = Watched(*nodes("a"))
    facts = big(pods=1)
    cycle: Callable[..., object] = world._cycle
    cycle(facts, 0.0)
    world.step(0.1, BindFailed("uid-g-0", "a", "timeout"))
    assert world.cause("g") == "retry"
    assert world.bought() == []


def test_a_device_class_that_comes_or_goes() -> None:
    world = Watched(*nodes("a", gpus=0))
    world.step(0.0, *big(pods=1))
    assert world.bought() == ["g-0"]
    world.step(1.0, DeviceClassSeen("gpu.example", GPU))
    assert "no devices of gpu.example" in world.told["g"]
    world.step(2.0, DeviceClassSeen("gpu.example", "other.example/gpu"))
    assert "devices" not in world.told["g"]
    world.step(5.0, DeviceClassSeen("gpu.example", GPU), factories.node("b"))
    assert world.cause("g") == "", "its node has a device plugin"


def test_gpus_that_an_agent_reports_are_no_class() -> None:
    """The kubelet does not offer them yet."""
    world = Watched(*nodes("a", gpus=0), DeviceClassSeen("gpu.example", GPU), factories.report("a"))
    world.step(0.0, *big(pods=1))
    assert world.cause("g") != "invalid"


def test_each_class_serves_a_resource_of_its_own_name() -> None:
    world = Watched(*nodes("a"), DeviceClassSeen("gpu.example", ""), DeviceClassSeen("cpu", ""))
    requests = (("cpu", 100), ("deviceclass.resource.kubernetes.io/gpu.example", 1), ("pods", 1))
    world.step(0.0, *with_specs(job("g", 1, gpus=0), requests=requests))
    assert "no devices of gpu.example" in world.told["g"]
    world.step(1.0, *job("h", 1, gpus=0))
    assert world.cause("h") == ""


def test_causes_have_one_of_the_reasons_of_the_api() -> None:
    reasons = {"Unschedulable", "SchedulingGated", "SchedulerError"}
    assert {*CAUSES.values()} == {*reasons, ""}
    assert CAUSES[pending_causes.NEW] == "", "a pod that was not tried gets no condition"


def test_gone_pods_are_told_nothing() -> None:
    world = Watched()
    world.step(0.0, *big())
    world.conditions.clear()
    world.step(1.0, PodGone("uid-g-3"))
    assert world.cause("g") == "pods-missing"
    assert sorted(world.conditions) == ["g-0", "g-1", "g-2"]
