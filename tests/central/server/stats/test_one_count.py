"""One count: whatever happens, each view of one moment shows the same numbers of GPUs, of gangs and the same reason."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from central.server.queries import explain, node_views
from protos.names import GPU, GPU_SHARE
from tests.central import factories
from tests.central.scheduler.device_claims.test_plugin_gpus import Cluster as Claims
from tests.central.scheduler.device_claims.test_plugin_gpus import by_claim, held
from tests.central.server.stats.every_view import EveryView, Written
from tests.effort import examples
from tests.simulation.fact_strategies import FACTS
from tests.simulation.share_strategies import OF_SHARES

WORTH = {GPU: Fraction(1), GPU_SHARE: Fraction(1, 100), factories.SLICE: Fraction(1, 7)}


def told(scheduler: Scheduler, story: list[list[Fact]]) -> EveryView:
    """Facts arrive every 20 seconds; then the scheduler writes what it has to write."""
    written, now = Written(), 0.0
    for facts in story:
        now += 20.0
        written.cycle(scheduler, facts, now)
    written.settle(scheduler, now + 60.0)
    return EveryView(scheduler, written)


def alike(numbers: dict[str, object]) -> None:
    assert len(set(numbers.values())) <= 1, numbers


def assert_one_count(views: EveryView) -> None:
    gpus = views.gpus()
    alike({**gpus})
    alike({**views.pending_gangs()})
    alike({**views.running_gangs()})
    assert_recounted(views)
    assert_explained(views)
    state = views.scheduler.state
    for name in views.written.queues:
        queue = views.scheduler.queues.by_name.get(name)
        if queue is not None and queue.seen.uid:  # it still has an object
            alike({**views.of_queue(name)})
    exist = {key[:2] for key, gang in state.gangs.items() if gang.has_podgroup}
    phases = Counter(
        gang_status.phase(gang)
        for key, gang in state.gangs.items()
        if gang.has_podgroup and not gang.foreign and key[:2] in views.written.groups
    )
    views.written.groups = {key: v for key, v in views.written.groups.items() if key in exist}
    assert views.groups() == phases


def assert_recounted(views: EveryView) -> None:
    """From the pods alone, without the product's code."""
    scheduler = views.scheduler
    used = sum(
        (
            amount * WORTH.get(resource, Fraction(0))
            for pod in scheduler.state.pods.values()
            if pod.node in scheduler.state.snapshot.columns.row
            and pod.seen.phase not in ("Succeeded", "Failed")
            for resource, amount in pod.seen.spec.requests
        ),
        Fraction(0),
    )
    there, shown, free = views.gpus()["console"]
    assert shown == round(float(used), 2)
    assert free >= 0
    assert shown + free <= there + 0.011
    for row in views.survey.nodes.values():
        assert row.count.used + row.count.free <= row.count.gpus + 1e-9, row


def assert_explained(views: EveryView) -> None:
    """A gang has a place in its queue if it is in the list of the console, the same one, with the same reason."""
    listed = {(row["namespace"], row["gang"]): row for row in views.pending if row["place"]}
    by_queue = Counter(row["queue"] for row in listed.values())
    for found in views.explained:
        row = listed.get((found.namespace, found.name))
        queue = found.queue.partition(" (")[0]
        if row is None:
            assert (found.place, found.pending) == (0, 0), found
            continue
        assert row["queue"] == queue
        assert (row["place"], by_queue[queue]) == (found.place, found.pending)
        assert (row["reason"], row["cause"]) == (found.reason, found.cause)
        assert found.phase in ("Pending", "Inqueue"), found


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.lists(FACTS, max_size=6), max_size=8))
def test_all_views_agree_on_any_cluster(story: list[list[Fact]]) -> None:
    assert_one_count(told(new_scheduler(factories.LEVELS), story))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.lists(OF_SHARES, max_size=6), max_size=8))
def test_all_views_agree_on_shared_gpus(story: list[list[Fact]]) -> None:
    assert_one_count(told(new_scheduler(factories.LEVELS), story))


def moment() -> EveryView:
    """Shares, slices, a cordoned node, gangs without a PodGroup, PodGroups without pods, a queue that does not exist, a
    pod of another scheduler, a terminating pod, and a gang that runs while one more of its pods waits."""
    cut = factories.sliced(factories.topology(1), 7)
    part, pod = factories.part, factories.pod
    facts: list[Fact] = [
        QueueSeen("a", uid="a"),
        QueueSeen("default", uid="d"),
        factories.node("whole", gpus=8),
        factories.report("whole"),
        factories.node("cut", gpus=1, slices=7),
        factories.report("cut", cut),
        factories.node("shared", gpus=2, shares=True),
        factories.report("shared", factories.topology(2, shares=True)),
        factories.node("away", gpus=4, unschedulable=True),
        pod("stranger", 1, node="whole", ours=False, phase="Running"),
        part("share", 30, queue="a"),
        factories.slicer(pod("slices", queue="a"), 2),
        factories.gang("train", 2, queue="a"),
        *(pod(f"train-{at}", 2, "train") for at in range(2)),
        *(pod(f"loose-{at}", 1, "loose", gang_min=2) for at in range(2)),
        factories.gang("empty", 3, queue="a"),
        pod("lost", 1, queue="nowhere"),
        pod("big", 9, queue="a"),
    ]
    scheduler, written = new_scheduler(factories.LEVELS), Written()
    written.cycle(scheduler, facts, 10.0)
    on = scheduler.state.pods["uid-loose-0"].node
    leaving = pod("loose-0", 1, "loose", gang_min=2, node=on, phase="Running", deleting=True)
    more: list[Fact] = [leaving, pod("loose-2", 1, "loose", gang_min=2), pod("train-2", 8, "train")]
    written.cycle(scheduler, more, 20.0)
    written.settle(scheduler, 30.0)
    return EveryView(scheduler, written)


def test_a_moment_with_all_that_was_counted_differently() -> None:
    views = moment()
    assert_one_count(views)
    slices = round(2 / 7, 4)
    assert views.gpus()["console"] == (16, round(1 + 0.3 + slices + 4 + 3, 2), 3.41)
    assert views.pending_gangs()["console"] == 3  # empty, lost, big
    assert views.running_gangs()["metrics"] == 4  # share, slices, train, loose
    assert views.of_queue("a")["queue tree from objects"] == (4.59, 2, 3)
    row = {row["name"]: row for row in views.pending}
    assert (row["train"]["place"], row["train"]["pods"]) == (None, 1)
    assert (row["empty"]["pods"], row["empty"]["cause"]) == (3, "pods-missing")
    lost = next(row for row in views.queues if row["error"])
    assert (lost["name"], lost["gangs"]) == ("(no such queue)", {"pending": 1})


@pytest.mark.parametrize("mode", ["beside", "only"])
def test_gpus_of_claims_are_used_by_their_pods(mode: str) -> None:
    made = Claims("a", mode=mode)
    plugin = [factories.pod("p", 1)] if mode == "beside" else []
    made.cycle(QueueSeen("default", uid="d"), *by_claim("c", 2), *plugin, held("theirs", "a/3"))
    scheduler, written = made.scheduler, Written()
    written.settle(scheduler, made.now + 60.0)
    views = EveryView(scheduler, written)
    alike({**views.gpus()})
    alike({**views.running_gangs()})
    free = 0 if mode == "beside" else 1
    assert views.gpus()["console"] == (4, 3 - free, free), "one is of a pod that is not known"
    (shown,) = node_views(scheduler, "a")
    assert not shown.trouble
    holders = {each.pod: [*each.gpus] for each in shown.holders}
    assert len(holders["c"]) == 2
    assert sorted(gpu for gpus in holders.values() for gpu in gpus) == [*range(3 - free)]
    explained = explain(scheduler, "ns", "c")
    assert explained is not None
    assert [*explained.pods[0].gpus] == holders["c"]
    assert explained.pods[0].confirmed


def test_the_kubelet_may_count_claimed_gpus_out() -> None:
    made = Claims("a")
    made.cycle(held("theirs", "a/3"))
    for allocatable, trouble in ((4, False), (3, False), (2, True)):
        made.cycle(factories.node("a", gpus=allocatable, shares=True))
        (shown,) = node_views(made.scheduler, "a")
        assert bool(shown.trouble) == trouble, shown.trouble
