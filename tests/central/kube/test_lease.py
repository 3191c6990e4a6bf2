"""One Lease, several who want it, on a clock that the test turns."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.transport.http_client import Client, StatusError, Unreachable
from central.kube.transport.lease import NAME, Lease
from central.kube.write import leader_label
from tests.central.kube.api_fixtures import PODS, pod
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


def test_one_has_it_while_it_renews(client: Client) -> None:
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
    told = record(client)
    assert (told["holderIdentity"], told["leaseTransitions"]) == ("a_1", 1)
    assert told["acquireTime"] < told["renewTime"]


def test_whoever_falls_silent_stops_before_another_begins(client: Client) -> None:
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


def test_who_looks_late_waits_as_long_as_all(client: Client) -> None:
    """What matters is since when it stands unchanged before our own eyes, whatever its clock said."""
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    clock.now += 3600.0
    assert not b.acquire()
    clock.now += 15.5
    assert b.acquire()


def test_given_back_it_is_free_at_once(client: Client) -> None:
    clock, (a, b) = wanting(client, "a_1", "b_1")
    assert a.acquire()
    assert not b.acquire()
    a.release()
    assert not a.held
    assert b.acquire()
    a.release()  # no longer its to give
    assert record(client)["holderIdentity"] == "b_1"
    clock.now += 1.0
    assert b.acquire()


def test_a_restarted_container_waits_for_nobody(client: Client) -> None:
    _, (before, after, other) = wanting(client, "pod-a_1", "pod-a_2", "pod-b_1")
    assert before.acquire()
    assert not other.acquire()
    assert after.acquire()
    assert not before.acquire()
    assert not before.held


def test_two_at_once(client: Client, api: Any, connected: Callable[[str], Client]) -> None:
    """Both saw that it is free: the API server lets one of them through."""
    clock, (a,) = wanting(client, "a_1")
    assert a.acquire()
    a.release()

    class Slow(Client):
        """Somebody else comes between its looking and its writing."""

        def request(self, method: str, *rest: Any, **more: Any) -> Any:
            if method == "PUT":
                assert a.acquire()
            return super().request(method, *rest, **more)

    slow = connected(api.url)
    slow.__class__ = Slow
    assert not Lease(slow, "default", "b_1", 15, clock=clock).acquire()
    assert record(client)["holderIdentity"] == "a_1"


def test_no_answer_is_no_lease(
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


def test_without_the_right_to_it(client: Client) -> None:
    lease = Lease(client, "not-there", "a_1", 15)
    with pytest.raises(StatusError):
        lease.acquire()
    assert not lease.held


def test_the_label_goes_with_the_lead(client: Client, made: Callable[..., Any]) -> None:
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
