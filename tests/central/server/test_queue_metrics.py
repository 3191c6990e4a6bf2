"""Metrics by queue: their values on a cluster at work, and that their number is bounded."""

from prometheus_client.metrics_core import Metric

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import schedule_once
from central.server.gpu_uses import GpuUses
from central.server.queue_metrics import OTHER, QueueLabels, QueueMetrics
from central.server.stats.gang_counters import GangCounters
from central.server.stats.queue_rows import QueueRow
from central.server.stats.surveyor import Survey, Surveyor
from protos.names import GPU
from protos.topology import GpuUse
from tests.central import factories
from tests.central.server.stats.test_surveyor import Direct

Samples = dict[tuple[str, ...], float]


def samples(families: list[Metric]) -> Samples:
    """By name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def collected(*facts: Fact, most: int = 100, uses: GpuUses | None = None) -> Samples:
    made, labels = new_scheduler(factories.LEVELS), QueueLabels(most)
    counters = GangCounters(made, labels.label)
    labels.rank(Surveyor(Direct(made)).survey(0.0).queues)
    for fact in (factories.node("n"), factories.report("n"), *facts):
        counters.observe([fact], schedule_once(made, [fact], 1000.0))
    return samples(
        list(QueueMetrics(counters, labels, uses).families(Surveyor(Direct(made)).survey(0.0)))
    )


def test_a_queue_that_runs_and_waits() -> None:
    found = collected(
        QueueSeen(
            "q", deserved=((GPU, 6),), guarantee=((GPU, 2),), capability=((GPU, 7), ("cpu", 9000))
        ),
        factories.pod("runs", 5, queue="q", cpu=500, created=900.0),
        factories.pod("waits", 3, queue="q", created=940.0),
        factories.pod("never", 9, queue="q", created=970.0),
    )
    assert found["lockstep_queue_used", "q", GPU] == found["lockstep_queue_used", "root", GPU] == 5
    assert found["lockstep_queue_used", "q", "cpu"] == 0.5
    assert found["lockstep_queue_deserved", "q", GPU] == 6
    assert found["lockstep_queue_guarantee", "q", GPU] == 2
    assert found["lockstep_queue_capability", "q", GPU] == 7
    assert found["lockstep_queue_capability", "q", "cpu"] == 9
    assert found["lockstep_queue_fair_share", "q", GPU] == 7
    assert found["lockstep_queue_requested", "q", GPU] == 12
    assert found["lockstep_queue_pending_gangs", "q", "quota"] == 1
    assert found["lockstep_queue_pending_gpus", "q", "quota"] == 3
    assert found["lockstep_queue_pending_gpus", "q", "invalid"] == 9
    assert found["lockstep_queue_oldest_pending_seconds", "q"] == 60
    assert found["lockstep_queue_gangs", "q", "pending"] == 2
    assert found["lockstep_queues",] == 3
    assert found["lockstep_largest_gang_gpus", "node", "test", "1"] == 3
    assert found["lockstep_pod_bind_duration_seconds_count",] == 0


def test_how_busy_the_gpus_of_a_queue_are() -> None:
    """Pods of which nothing is told, and reports of other nodes about them, count for nothing."""
    uses = GpuUses(idle_after_s=0.0)
    told = [
        GpuUse("ns", "idle", "c", 0.0, 1),
        GpuUse("ns", "busy", "c", 0.8, 1),
        GpuUse("ns", "x", "c", -1.0),
    ]
    uses.record("n", told, 0.0)
    uses.record("m", [GpuUse("ns", "quiet", "c", 0.0, 1)], 0.0)
    pods = [
        factories.pod(name, gpus, queue="q")
        for name, gpus in (("idle", 3), ("busy", 1), ("x", 1), ("quiet", 1))
    ]
    found = collected(QueueSeen("q"), QueueSeen("r"), *pods, uses=uses)
    assert found["lockstep_queue_idle_gpus", "q"] == 3
    assert found["lockstep_queue_idle_gpus", "r"] == 0
    assert found["lockstep_queue_gpu_utilization_ratio", "q"] == 0.2
    assert ("lockstep_queue_gpu_utilization_ratio", "r") not in found


def test_a_queue_without_gangs_has_zeros() -> None:
    found = collected(QueueSeen("q"))
    assert found["lockstep_queue_gangs", "q", "pending"] == 0
    assert found["lockstep_queue_gangs", "q", "running"] == 0
    assert found["lockstep_queue_pending_gangs", "q", "capacity"] == 0
    assert found["lockstep_queue_pending_gpus", "q", "capacity"] == 0
    assert found["lockstep_queue_oldest_pending_seconds", "q"] == 0
    assert found["lockstep_queue_reserved_gpus", "q"] == 0


def test_counters_begin_at_zero() -> None:
    found = collected(QueueSeen("q"))
    assert found["lockstep_queue_gangs_started_total", "q"] == 0
    assert found["lockstep_queue_evictions_total", "q", "gpu-memory"] == 0
    assert found["lockstep_queue_wait_duration_seconds_count", "q"] == 0
    assert found["lockstep_gang_start_duration_seconds_count", "1-8"] == 0
    assert ("lockstep_queue_gangs_started_total", "root") not in found, "nothing is counted for it"


def rows(*amounts: float) -> list[QueueRow]:
    return [QueueRow(f"q{at}", used={GPU: amount}) for at, amount in enumerate(amounts)]


def test_the_number_of_series_is_bounded() -> None:
    labels = QueueLabels(3)
    made = QueueMetrics(GangCounters(new_scheduler(()), labels.label), labels)
    many = rows(*range(1000))
    found = samples(list(made.families(Survey(queues=tuple(many)))))
    named = {key[1] for key in found if key[0] == "lockstep_queue_used"}
    assert named == {"q999", "q998", "q997", OTHER}
    assert found["lockstep_queue_used", OTHER, GPU] == sum(range(997))
    assert found["lockstep_queues",] == 1000
    assert found["lockstep_queues_with_series",] == 3
    more = QueueMetrics(GangCounters(new_scheduler(()), QueueLabels(3).label), QueueLabels(3))
    assert len(found) == len(samples(list(more.families(Survey(queues=tuple(rows(*range(50))))))))


def test_a_queue_keeps_its_series_when_others_pass_it_for_a_moment() -> None:
    labels = QueueLabels(2)
    labels.rank(rows(3, 2, 1))
    assert [labels.label(f"q{at}") for at in range(3)] == ["q0", "q1", OTHER]
    labels.rank(rows(3, 2, 9))
    assert [labels.label(f"q{at}") for at in range(3)] == ["q0", "q1", OTHER]
    labels.rank([*rows(3, 2, 9), QueueRow("new")])  # the queues are others now
    assert [labels.label(f"q{at}") for at in range(3)] == ["q0", OTHER, "q2"]


def test_the_root_comes_first() -> None:
    labels = QueueLabels(1)
    labels.rank([*rows(5), QueueRow("root", used={GPU: 5.0})])
    assert (labels.label("root"), labels.label("q0")) == ("root", OTHER)


def test_what_happens_before_anybody_looks_counts_for_its_queue() -> None:
    labels = QueueLabels(2)
    assert [labels.label(f"q{at}") for at in range(3)] == ["q0", "q1", OTHER]
    labels.rank(rows(1, 2, 3))
    assert [labels.label(f"q{at}") for at in range(3)] == [OTHER, "q1", "q2"]
    assert labels.label("made-up") == OTHER  # names are no longer taken up


def test_a_queue_that_does_not_exist_has_no_label() -> None:
    """Any pod may name one, also before the queues are ranked."""
    labels = QueueLabels(exists=lambda name: name == "q")
    assert [labels.label(name) for name in ("q", "log in at x", "q")] == ["q", OTHER, "q"]
