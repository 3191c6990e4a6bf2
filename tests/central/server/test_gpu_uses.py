"""The use of GPUs by pods, and since when pods are idle."""

import pytest

from central.server.gpu_uses import LEAST_S, TELL_EVERY_S, GpuUses
from protos.topology import GpuUse

GIB = 2**30


def reported(uses: GpuUses, now: float, *rates: float, memory: int = GIB) -> None:
    uses.record(
        "n", [GpuUse("ns", "p", f"c{at}", rate, memory) for at, rate in enumerate(rates)], now
    )


@pytest.fixture
def uses() -> GpuUses:
    return GpuUses(idle_below=0.1, idle_after_s=60.0)


def idle(uses: GpuUses, now: float) -> bool:
    use = uses.on_node("n", "ns", "p")
    assert use is not None
    return uses.is_idle(use, now)


def test_a_pod_is_idle_once_it_has_lasted(uses: GpuUses) -> None:
    reported(uses, 100.0, 0.09)
    assert not idle(uses, 159.9)
    reported(uses, 150.0, 0.0)
    assert idle(uses, 160.0)
    reported(uses, 170.0, 0.1)
    assert not idle(uses, 500.0), "it was busy once"
    reported(uses, 500.0, 0.0)
    assert not idle(uses, 559.0)


def test_the_mean_of_its_containers_counts_and_memory_is_their_sum(uses: GpuUses) -> None:
    reported(uses, 0.0, 0.0, 0.5)
    found = uses.on_node("n", "ns", "p")
    assert found is not None
    assert (found.utilization, found.memory, found.idle_since) == (0.25, 2 * GIB, None)


def test_what_the_driver_does_not_tell_is_not_idle(uses: GpuUses) -> None:
    reported(uses, 0.0, -1.0, memory=-1)
    found = uses.on_node("n", "ns", "p")
    assert found is not None
    assert (found.utilization, found.memory) == (None, -1)
    assert not idle(uses, 1e9)


def test_the_scheduler_is_told_of_idle_pods_once_a_minute(uses: GpuUses) -> None:
    reported(uses, 0.0, 0.0)
    assert uses.idle_on("n", LEAST_S - 1) is None
    assert uses.idle_on("n", LEAST_S) == (("ns", "p", LEAST_S),)
    assert uses.idle_on("n", LEAST_S + TELL_EVERY_S - 1) is None
    reported(uses, LEAST_S + 30, 0.0)
    assert uses.idle_on("n", LEAST_S + TELL_EVERY_S) == (("ns", "p", LEAST_S + TELL_EVERY_S),)
    reported(uses, 500.0, 0.9)
    assert uses.idle_on("n", 500.0) == (), "at once"
    assert uses.idle_on("n", 1000.0) is None
    assert uses.idle_on("other", 1000.0) is None


def test_nothing_is_kept_of_pods_and_nodes_that_are_gone(uses: GpuUses) -> None:
    reported(uses, 0.0, 0.0)
    uses.record("n", [], 1.0)
    assert uses.on_node("n", "ns", "p") is None
    reported(uses, 2.0, 0.0)
    assert not idle(uses, 61.0), "it began again"
    uses.forget("n")
    assert uses.on_node("n", "ns", "p") is None


def test_the_use_by_all_pods_of_a_gang(uses: GpuUses) -> None:
    pods = [("n", "ns", "p"), ("n", "ns", "q"), ("m", "ns", "r")]
    assert uses.together(pods, 0.0) is None
    uses.record("n", [GpuUse("ns", "p", "c", 0.0, 1), GpuUse("ns", "q", "c", 0.5, 2)], 10.0)
    uses.record("m", [GpuUse("ns", "r", "c", -1.0, 4)], 10.0)
    assert uses.together(pods, 20.0) == {"utilization": 0.25, "memory": 7, "idle_s": None}
    uses.record("n", [GpuUse("ns", "p", "c", 0.0, 1), GpuUse("ns", "q", "c", 0.0, -1)], 30.0)
    assert uses.together(pods, 50.0) == {"utilization": 0.0, "memory": 5, "idle_s": 20.0}
    assert uses.together(pods[2:], 50.0) == {"utilization": None, "memory": 4, "idle_s": None}
