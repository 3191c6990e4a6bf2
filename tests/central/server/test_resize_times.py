"""How long changes of size take, from the decision to the first step."""

import pytest
from prometheus_client.metrics_core import CounterMetricFamily

from central.controllers.job.training_plan import TrainingPlan
from central.server.grpc.resize_times import SHOWN, ResizeTimes
from protos.stubs import fleet_pb2 as pb


def seen(times: ResizeTimes) -> dict[str, tuple[float, float]]:
    """Count and sum by stage."""
    (family,) = times.histogram.collect()
    found: dict[str, list[float]] = {}
    for sample in family.samples:
        if sample.name.endswith(("_count", "_sum")):
            found.setdefault(sample.labels["stage"], []).append(sample.value)
    return {stage: (values[0], values[1]) for stage, values in found.items()}


def plan(generation: int, members: int = 4, cause: str = "need") -> TrainingPlan:
    """Of members with 2 GPUs."""
    numbers = tuple(range(members))
    why = f"room for {generation}"
    return TrainingPlan(
        "team",
        "train",
        "uid",
        generation,
        numbers,
        (),
        2,
        None,
        why,
        cause=cause,
        queue="q",
        gpus=2.0,
    )


def progress(
    live: int, pause_s: float | None = None, repeated_s: float = 0.0
) -> pb.TrainingProgress:
    """pause_s: before the live generation."""
    found = pb.TrainingProgress(generation=live)
    if pause_s is not None:
        found.pause.generation, found.pause.seconds = live, pause_s
        found.pause.repeated_s = repeated_s
    return found


def told(times: ResizeTimes, generation: int, now: float, said: pb.TrainingProgress) -> None:
    """All members of the plan have taken a step."""
    times.reported("pod", generation, complete=True, stepped=True, now=now, progress=said)


def lost(times: ResizeTimes) -> dict[tuple[str, ...], float]:
    (family,) = [one for one in times.families() if isinstance(one, CounterMetricFamily)]
    assert family.name == "lockstep_elastic_lost_gpu_seconds"
    return {tuple(one.labels.values()): one.value for one in family.samples}


def started() -> ResizeTimes:
    """A Job whose first plan is followed: no change of size."""
    times = ResizeTimes()
    times.decided("pod", plan(1), 100.0)
    times.reported("pod", 1, complete=True, stepped=True, now=130.0)
    assert seen(times) == {}
    return times


def test_each_stage_counts_once() -> None:
    times = started()
    times.decided("pod", plan(2), 200.0)
    times.decided("pod", plan(2), 201.0)  # only places of pods changed
    times.reported("pod", 1, complete=True, stepped=True, now=201.0)
    assert seen(times) == {}, "it follows the plan before"
    for now in (202.0, 203.0):
        times.reported("pod", 2, complete=False, stepped=True, now=now)
    assert seen(times) == {"told": (1, 2)}
    for now in (205.0, 206.0):
        times.reported("pod", 2, complete=True, stepped=False, now=now)
    for now in (210.0, 211.0):
        times.reported("pod", 2, complete=True, stepped=True, now=now)
    assert seen(times) == {"told": (1, 2), "acknowledged": (1, 5), "first-step": (1, 10)}


def test_stages_between_two_reports_count_as_well() -> None:
    times = started()
    times.decided("pod", plan(2), 200.0)
    times.reported("pod", 2, complete=True, stepped=True, now=204.0)
    assert set(seen(times).values()) == {(1, 4)}
    assert len(seen(times)) == 3


def test_a_superseded_change_is_not_counted_further() -> None:
    times = started()
    times.decided("pod", plan(2), 200.0)
    times.reported("pod", 2, complete=False, stepped=False, now=201.0)
    times.decided("pod", plan(3), 210.0)
    times.reported("pod", 2, complete=True, stepped=True, now=211.0)
    times.reported("pod", 3, complete=True, stepped=True, now=213.0)
    assert seen(times) == {"told": (2, 4), "acknowledged": (1, 3), "first-step": (1, 3)}


def test_another_pod_of_the_coordinator_begins_anew() -> None:
    times = started()
    times.decided("pod", plan(2), 200.0)
    times.forget({"other"})
    times.reported("pod", 2, complete=True, stepped=True, now=204.0)
    assert seen(times) == {}


# -- what a change costs


def test_the_pause_of_a_change_is_lost_by_all_members_of_the_new_size() -> None:
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2, members=3), 200.0)
    times.reported("pod", 2, complete=False, stepped=True, now=201.0, progress=progress(5))
    (change,) = times.changes("pod")
    assert not change.HasField("lost_s"), "unknown until its first step"
    told(times, 2, 210.0, progress(6, 7.0))
    for now in (211.0, 220.0):
        told(times, 2, now, progress(6, 7.0))
    (change,) = times.changes("pod")
    assert (change.before, change.after, change.cause, change.reason) == (
        4,
        3,
        "need",
        "room for 2",
    )
    assert (change.told_s, change.acknowledged_s, change.stepped_s) == (1.0, 10.0, 10.0)
    assert (change.lost_s, change.lost_gpu_s) == (7.0, 7.0 * 3 * 2)
    assert lost(times) == {("q", "need"): 42.0}


def test_repeated_steps_are_lost_as_well() -> None:
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2, cause="loss"), 200.0)
    told(times, 2, 210.0, progress(6, 7.0, repeated_s=20.0))
    assert lost(times) == {("q", "loss"): 27.0 * 8}


def test_nobody_claims_more_than_the_time_that_has_passed() -> None:
    """The coordinator runs in a tenant's pod."""
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2), 200.0)
    told(times, 2, 210.0, progress(6, 1e12, repeated_s=1e12))
    assert lost(times) == {("q", "need"): 70.0 * 8}
    told(times, 2, 211.0, progress(7, 1e12))
    assert lost(times) == {("q", "need"): 70.0 * 8, ("q", "process"): 8.0}


def test_processes_that_begin_again_without_a_change_of_members() -> None:
    times = started()
    told(times, 1, 140.0, progress(5))
    told(times, 1, 150.0, progress(6, 3.0))
    (change,) = times.changes("pod")
    assert (change.before, change.after, change.cause) == (4, 4, "process")
    assert (change.lost_s, change.HasField("stepped_s"), change.superseded) == (3.0, False, False)
    assert lost(times) == {("q", "process"): 24.0}
    assert seen(times) == {}, "no change of size"
    times.decided("pod", plan(2), 200.0)
    assert [one.superseded for one in times.changes("pod")] == [False, False]


def test_what_was_before_the_first_report_is_not_counted() -> None:
    """Another scheduler has counted it."""
    times = started()
    told(times, 1, 140.0, progress(5, 60.0))
    told(times, 1, 141.0, progress(5, 60.0))
    assert lost(times) == {}
    assert times.changes("pod") == []


def test_a_change_that_the_processes_do_not_notice_costs_nothing() -> None:
    """A member was lost before it joined."""
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2), 200.0)
    told(times, 2, 201.0, progress(5))
    (change,) = times.changes("pod")
    assert change.HasField("lost_s")
    assert change.lost_s == 0
    assert lost(times) == {}


def test_an_old_coordinators_loss_is_unknown() -> None:
    times = started()
    times.decided("pod", plan(2), 200.0)
    times.reported("pod", 2, complete=True, stepped=True, now=201.0)
    (change,) = times.changes("pod")
    assert not change.HasField("lost_s")
    assert lost(times) == {}


def test_steps_that_nobody_reports_leave_the_loss_unknown() -> None:
    """The launcher's processes say that they have acknowledged, and no more."""
    times = started()
    times.reported("pod", 1, complete=True, stepped=False, now=140.0, progress=progress(5))
    times.decided("pod", plan(2), 200.0)
    times.reported("pod", 2, complete=True, stepped=False, now=203.0, progress=progress(6))
    (change,) = times.changes("pod")
    assert change.acknowledged_s == 3.0
    assert not change.HasField("stepped_s")
    assert not change.HasField("lost_s")


def test_a_superseded_change_says_so_and_its_pause_is_the_next_ones() -> None:
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2, cause="share"), 200.0)
    times.decided("pod", plan(3), 205.0)
    told(times, 2, 206.0, progress(5))
    told(times, 3, 210.0, progress(6, 4.0))
    first, second = times.changes("pod")
    assert (first.superseded, second.superseded) == (True, False)
    assert not first.HasField("lost_s")
    assert lost(times) == {("q", "need"): 32.0}


def test_two_pauses_of_one_change() -> None:
    """Not all newcomers were there in time: they came with another generation."""
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2, cause="room"), 200.0)
    times.reported("pod", 2, complete=False, stepped=True, now=210.0, progress=progress(6, 2.0))
    told(times, 2, 240.0, progress(7, 3.0))
    assert lost(times) == {("q", "room"): 40.0}
    assert times.changes("pod")[0].lost_s == 5.0


def test_a_pause_that_is_not_reported_leaves_the_loss_unknown() -> None:
    """Another generation is live, in which nobody reports steps, or none was before."""
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2), 200.0)
    told(times, 2, 210.0, progress(6))
    assert not times.changes("pod")[0].HasField("lost_s")
    times = started()
    told(times, 1, 140.0, progress(0))
    times.decided("pod", plan(2), 200.0)
    told(times, 2, 210.0, progress(0))
    assert not times.changes("pod")[0].HasField("lost_s")


@pytest.mark.parametrize("cause", ["", "share"])
def test_the_cause_of_another_schedulers_decision_is_unknown(cause: str) -> None:
    times = started()
    told(times, 1, 140.0, progress(5))
    times.decided("pod", plan(2, cause=cause), 200.0)
    told(times, 2, 210.0, progress(6, 1.0))
    assert lost(times) == {("q", cause or "unknown"): 8.0}


def test_the_last_changes_are_kept_and_the_sums_stay() -> None:
    times = ResizeTimes(str.upper)
    times.decided("pod", plan(1), 100.0)
    told(times, 1, 140.0, progress(1))
    for number in range(2, SHOWN + 4):
        times.decided("pod", plan(number), number * 100.0)
        told(times, number, number * 100.0 + 5, progress(number, 1.0))
    assert [one.reason for one in times.changes("pod")] == [
        f"room for {number}" for number in range(4, SHOWN + 4)
    ]
    times.forget(set())
    assert times.changes("pod") == []
    assert lost(times) == {("Q", "need"): 8.0 * (SHOWN + 2)}
