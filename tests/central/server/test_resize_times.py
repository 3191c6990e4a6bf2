"""How long changes of size take, from the decision to the first step."""

from central.server.grpc.resize_times import ResizeTimes


def seen(times: ResizeTimes) -> dict[str, tuple[float, float]]:
    """Count and sum by stage."""
    (family,) = times.histogram.collect()
    found: dict[str, list[float]] = {}
    for sample in family.samples:
        if sample.name.endswith(("_count", "_sum")):
            found.setdefault(sample.labels["stage"], []).append(sample.value)
    return {stage: (values[0], values[1]) for stage, values in found.items()}


def started() -> ResizeTimes:
    """A Job whose first plan is followed: no change of size."""
    times = ResizeTimes()
    times.decided("pod", 1, 100.0)
    times.reported("pod", 1, complete=True, stepped=True, now=130.0)
    assert seen(times) == {}
    return times


def test_each_stage_counts_once() -> None:
    times = started()
    times.decided("pod", 2, 200.0)
    times.decided("pod", 2, 201.0)  # only places of pods changed
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
    times.decided("pod", 2, 200.0)
    times.reported("pod", 2, complete=True, stepped=True, now=204.0)
    assert set(seen(times).values()) == {(1, 4)}
    assert len(seen(times)) == 3


def test_a_superseded_change_is_not_counted_further() -> None:
    times = started()
    times.decided("pod", 2, 200.0)
    times.reported("pod", 2, complete=False, stepped=False, now=201.0)
    times.decided("pod", 3, 210.0)
    times.reported("pod", 2, complete=True, stepped=True, now=211.0)
    times.reported("pod", 3, complete=True, stepped=True, now=213.0)
    assert seen(times) == {"told": (2, 4), "acknowledged": (1, 3), "first-step": (1, 3)}


def test_another_pod_of_the_coordinator_begins_anew() -> None:
    times = started()
    times.decided("pod", 2, 200.0)
    times.forget({"other"})
    times.reported("pod", 2, complete=True, stepped=True, now=204.0)
    assert seen(times) == {}
