"""One Lease and several candidates, on a manual clock."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.transport.http_client import Client, StatusError, Unreachable
from central.kube.transport.lease import NAME, Lease
from central.kube.write import leader_label
from tests.central.kube.api_fixtures import PODS, pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.cable import Cable

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def record(client: Client) -> dict[str, Any]:
    spec: dict[str, Any] = client.get(f"{LEASES}/{NAME}")["spec"]
    return spec


def wanting(client: Client, *holders: str) -> tuple[Clock, list[Lease]]:
    clock = Clock()
    return clock, [
        Lease(client, "default", holder, 15, pod=holder.partition("_")[0], clock=clock)
        for holder in holders
    ]


def test_the_holder_keeps_it_while_it_renews(client: Client) -> None:
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    assert not b.acquire()
    assert b.other_holder == "a_1"
    for _ in range(20):
        clock.now += 5.0
        assert a.acquire()
        assert not b.acquire()
        assert a.held
        assert not b.held
    spec = record(client)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a_1", 1)
    assert spec["acquireTime"] < spec["renewTime"]


def test_a_silent_holder_stops_before_another_starts(client: Client) -> None:
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    assert not b.acquire()
    clock.now += 10.5
    assert not a.held
    assert not b.acquire()
    clock.now += 4.0
    assert not b.acquire()
    clock.now += 1.0
    assert b.acquire()
    assert not a.acquire()
    assert a.other_holder == "b_1"
    assert record(client)["leaseTransitions"] == 2


def test_a_late_candidate_waits_the_full_duration(client: Client) -> None:
    """The duration counts from when the candidate itself saw the last change."""
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    clock.now += 3600.0
    assert not b.acquire()
    clock.now += 15.5
    assert b.acquire()


def test_a_released_lease_is_free_at_once(client: Client) -> None:
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    assert not b.acquire()
    a.release()
    assert not a.held
    assert record(client)["leaseDurationSeconds"] == 1  # the API server takes no 0
    assert b.acquire()
    a.release()  # no longer its to give
    assert record(client)["holderIdentity"] == "b_1"
    clock.now += 1.0
    assert b.acquire()


def test_a_restarted_container_does_not_wait(client: Client) -> None:
    _, (before, after, other) = wanting(client, "pod-a_1", "pod-a_2", "pod-b_1")
    assert before.acquire()
    assert not other.acquire()
    assert after.acquire()
    assert not before.acquire()
    assert not before.held


def test_two_candidates_at_once(
    client: Client, api: Any, connected: Callable[[str], Client]
) -> None:
    """Both have seen that it is free; the API server accepts one."""
    clock, (a,) = wanting(client, "a_1")
    assert a.acquire()
    a.release()

    class Slow(Client):
        """Another candidate takes it between the read and the write."""

        def request(self, method: str, *rest: Any, **more: Any) -> Any:
            if method == "PUT":
                assert a.acquire()
            return super().request(method, *rest, **more)

    slow = connected(api.url)
    slow.__class__ = Slow
    assert not Lease(slow, "default", "b_1", 15, clock=clock).acquire()
    assert record(client)["holderIdentity"] == "a_1"


def test_without_an_answer_there_is_no_lease(
    client: Client, cable: Cable, connected: Callable[[str], Client]
) -> None:
    clock, (a,) = wanting(connected(cable.url), "a_1")
    assert a.acquire()
    cable.pull()
    with pytest.raises(Unreachable):
        a.acquire()
    clock.now += 10.5
    cable.plug()
    assert not a.held
    assert a.acquire()


OTHERS: list[dict[str, Any]] = [
    {"metadata": {"name": "another"}},
    {"kind": "Status"},
    {"metadata": {}},
    {"spec": {"holderIdentity": "a_1", "leaseDurationSeconds": -1}},
    {"spec": {"holderIdentity": "a_1", "leaseDurationSeconds": "long"}},
    {"spec": {"holderIdentity": "a_1", "leaseTransitions": "many"}},
    {"spec": ["a_1"]},
    {"spec": {"holderIdentity": "b_1"}},
]


@pytest.mark.parametrize("change", OTHERS)
def test_an_answer_that_is_not_our_lease_is_none(
    connected: Callable[[str], Client], change: dict[str, Any]
) -> None:
    """Whatever stands between us and the API server says 200."""

    def answer(call: Call) -> Answer:
        if call.method == "GET":
            return failure(404, "not found")
        return Answer(201, {**call.body, **change})

    with Scripted(answer) as server:
        _, (a,) = wanting(connected(server.url), "a_1")
        with pytest.raises(Unreachable, match="the answer is not"):
            a.acquire()
        assert not a.held


def test_without_permission(client: Client) -> None:
    lease = Lease(client, "not-there", "a_1", 15)
    with pytest.raises(StatusError):
        lease.acquire()
    assert not lease.held


def test_the_label_moves_with_the_leader(client: Client, made: Callable[..., Any]) -> None:
    def marked() -> list[str]:
        found = client.get(f"{PODS}?labelSelector=lockstep.dev/leads%3Dtrue")["items"]
        return [each["metadata"]["name"] for each in found]

    for name in ("a", "b"):
        made(PODS, pod(name))
    assert leader_label.set_label(client, "default", "a", leads=True)
    assert leader_label.set_label(client, "default", "a", leads=True)
    assert marked() == ["a"]
    assert leader_label.set_label(client, "default", "b", leads=True)
    assert marked() == ["b"]
    assert leader_label.set_label(client, "default", "b", leads=False)
    assert leader_label.set_label(client, "default", "gone", leads=False)
    assert marked() == []
