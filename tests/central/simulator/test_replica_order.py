"""Which pods of a ReplicaSet leave first: the order of Kubernetes' controller."""

from central.simulator.replica_order import surplus
from central.simulator.sim_pod import PodPlan, SimPod
from tests.central import factories


def _pod(
    name: str, node: str = "", phase: str = "Running", started: float = 0.0, since: float = 0.0
) -> SimPod:
    seen = factories.pod(name, node=node, phase=phase)
    return SimPod(seen, PodPlan(None, True, ()), since, (), started=started)


def _names(pods: list[SimPod], wanted: int, now: float = 100.0) -> list[str]:
    return [uid.removeprefix("uid-") for uid in surplus(pods, wanted, now)]


def test_pods_without_a_node_leave_before_pods_that_start_and_those_that_run() -> None:
    pods = [_pod("runs", "n1"), _pod("starts", "n2", "Pending"), _pod("waits", phase="Pending")]
    assert _names(pods, 2) == ["waits"]
    assert _names(pods, 1) == ["waits", "starts"]


def test_the_node_with_the_most_of_them_loses_its_pods() -> None:
    """Counted once: it may lose all of them."""
    pods = [_pod("a", "n1"), *(_pod(f"b{index}", "n2") for index in range(3)), _pod("c", "n1")]
    assert sorted(_names(pods, 2)) == ["b0", "b1", "b2"]


def test_the_latest_leave_and_ages_within_a_power_of_two_are_equal() -> None:
    pods = [_pod("old", "n1", started=0.0), _pod("new", "n2", started=99.0)]
    assert _names(pods, 1) == ["new"]
    alike = [_pod(f"p{index}", f"n{index}", started=index * 0.001) for index in range(20)]
    leaving = _names(alike, 10)
    assert leaving not in ([f"p{index}" for index in range(19, 9, -1)], sorted(leaving))


def test_pods_that_became_ready_in_the_same_second_leave_by_their_creation() -> None:
    pods = [
        _pod(f"p{index}", f"n{index}", started=99.0 + index / 100, since=float(90 - 20 * index))
        for index in range(4)
    ]
    assert _names(pods, 1) == ["p0", "p1", "p2"]


def test_pods_that_do_not_run_leave_by_their_creation() -> None:
    for node in ("", "n1"):
        pods = [
            _pod(f"p{index}", node, "Pending", since=float(90 - 20 * index)) for index in range(4)
        ]
        assert _names(pods, 1) == ["p0", "p1", "p2"]


def test_nobody_leaves_when_there_are_not_too_many() -> None:
    assert not _names([_pod("a", "n1")], 3)
