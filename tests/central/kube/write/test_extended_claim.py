"""The claim for a pod's extended resources: made once, allocated and named in the pod's status before the binding."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.decode.device_claim_decoder import FINALIZER
from central.kube.transport.http_client import Client
from central.kube.write.extended_claim import claim_of, name_of
from central.model.decisions import Bind
from central.model.device_claims import AllocatedDevice, ClaimAllocation
from central.model.facts import BindDone, BindFailed
from central.model.json_types import Json
from tests.central.kube.scripted_api import SUCCESS, Answer, Call, Scripted, failure, pending_pod
from tests.central.kube.write.test_device_claim_writer import OWN, outcome

Connected = Callable[[str], Client]
RESOURCE, CLASS = "example.com/gpu", "gpu.example"
NAME = "p-extended-resources-u"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def planned(count: int) -> ClaimAllocation:
    given = [AllocatedDevice(RESOURCE, CLASS, "n1", f"gpu-{i}") for i in range(count)]
    return ClaimAllocation("", "", tuple(given), OWN, ((RESOURCE, CLASS),))


def bind(count: int) -> Bind:
    return Bind("u", "default", "p", "n1", device_claims=(planned(count),))


def container(name: str, amount: int, **more: Any) -> Json:
    requests = {"cpu": "1", **({RESOURCE: str(amount)} if amount else {}), "memory": "1Gi"}
    return {"name": name, "resources": {"requests": requests}, **more}


def pod(*containers: Json, initial: tuple[Json, ...] = ()) -> Json:
    made: Json = pending_pod().body  # type: ignore[assignment]  # an object
    made["spec"] = {
        **made.get("spec", {}),
        "containers": [*containers],
        "initContainers": [*initial],
    }
    return made


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("containers", "initial", "requests", "uses"),
    [
        ((("a", 2),), (), {"0": 2}, "a0"),
        ((("a", 1), ("b", 0), ("c", 2)), (), {"0": 1, "2": 2}, "a0 c2"),
        ((("a", 2),), (("i", 1),), {"1": 2}, "a1 i1"),
        ((("a", 1), ("b", 1)), (("i", 2),), {"1": 1, "2": 1}, "a1 b2 i1 i2"),
        ((("a", 1),), (("i", 3),), {"0": 2, "1": 1}, "a1 i1 i0"),
        ((("a", 1),), (("i", 3), ("j", 4)), {"1": 3, "2": 1}, "a2 i2 j2 i1 j1"),
        ((("a", 0),), (("i", 2), ("j", 2)), {"0": 2}, "i0 j0"),
        ((("a", 1),), (("s", 1, SIDECAR), ("i", 2)), {"0": 1, "1": 1, "2": 1}, "s0 a2 i2 i1"),
    ],
)
def test_requests_by_container(
    containers: tuple[Any, ...], initial: tuple[Any, ...], requests: dict[str, int], uses: str
) -> None:
    """Numbers stand for the containers' places, init containers first."""
    made = [container(name, amount) for name, amount in containers]
    first = tuple(container(n, amount, **(more[0] if more else {})) for n, amount, *more in initial)
    total = sum(requests.values())
    claim, given, status = claim_of(
        bind(total), planned(total), pod(*made, initial=first), FINALIZER
    )
    asked = {
        each["name"]: each["exactly"]["count"] for each in claim["spec"]["devices"]["requests"]
    }
    assert asked == {f"container-{at}-request-1": count for at, count in requests.items()}
    told = [(each["containerName"], each["requestName"]) for each in status["requestMappings"]]
    assert told == [(use[0], f"container-{use[1]}-request-1") for use in uses.split()]
    assert [each.device for each in given.devices] == [f"gpu-{i}" for i in range(total)]
    got = [each.request for each in given.devices]
    assert {name: got.count(name) for name in got} == asked
    with pytest.raises(ValueError, match="another amount"):
        claim_of(bind(9), planned(9), pod(*made, initial=first), FINALIZER)


def test_the_name_is_one_of_an_object() -> None:
    long = Bind("0123456789", "default", "x" * 199 + ".y" + "z" * 50, "n1")
    assert name_of(long) == "x" * 199 + "-extended-resources-01234567"


class OwnClaimServer:
    """An API server that has the pod, and the claim once it is made."""

    def __init__(self, claim: Json | None = None, *, keeps: bool = True) -> None:
        self.claim, self.keeps = claim, keeps
        self.told: Json = {}
        self.deleted = 0
        self.bound = SUCCESS

    def answer(self, call: Call) -> Answer:
        if call.path.endswith("/binding"):
            assert self.told["resourceClaimName"] == NAME
            assert self.claim is not None
            assert [each["uid"] for each in self.claim["status"]["reservedFor"]] == ["u"]
            return self.bound
        if call.path.endswith("/pods/p/status"):
            self.told = call.body["status"]["extendedResourceClaimStatus"] if self.keeps else {}
            found = pod(container("a", 2))
            found["status"] = {"extendedResourceClaimStatus": self.told} if self.told else {}
            return Answer(200, found)
        if call.path.endswith("/pods/p"):
            return Answer(200, pod(container("a", 2)))
        if "/deviceclasses/" in call.path:
            return Answer(200, {"metadata": {"name": CLASS, "uid": "8"}, "spec": {}})
        return self._of_claim(call)

    def _of_claim(self, call: Call) -> Answer:
        if call.method == "POST":
            if self.claim is not None:
                return failure(409, "already exists")
            self.claim = call.body
            self.claim["metadata"] |= {"uid": "7", "resourceVersion": "1"}
            return Answer(201, self.claim)
        if self.claim is None:
            return failure(404, f'resourceclaims "{NAME}" not found', reason="NotFound")
        if call.method == "DELETE":
            assert call.body["preconditions"] == {"uid": self.claim["metadata"]["uid"]}
            assert not self.claim["metadata"].get("finalizers")
            self.claim, self.deleted = None, self.deleted + 1
            return SUCCESS
        if call.method == "PATCH":
            self.claim["metadata"] |= call.body.get("metadata", {})
            self.claim.setdefault("status", {}).update(call.body.get("status", {}))
        return Answer(200, self.claim)


def left_over(device: str, owner: str = "u") -> Json:
    claim, given, _ = claim_of(bind(2), planned(2), pod(container("a", 2)), FINALIZER)
    claim["metadata"] |= {"uid": "6", "resourceVersion": "1"}
    claim["metadata"]["ownerReferences"][0]["uid"] = owner
    results = [each._replace(device=device)._asdict() for each in given.devices]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    return claim


def test_it_is_made_and_named_before_the_binding(connected: Connected) -> None:
    there = OwnClaimServer()
    with Scripted(there.answer) as server:
        assert outcome(connected(server.url), bind(2)) == BindDone("u", "n1")
    assert there.claim is not None
    assert there.claim["metadata"]["finalizers"] == [FINALIZER]
    results = there.claim["status"]["allocation"]["devices"]["results"]
    assert [(each["request"], each["device"]) for each in results] == [
        ("container-0-request-1", "gpu-0"),
        ("container-0-request-1", "gpu-1"),
    ]


def test_one_with_other_devices_is_made_again(connected: Connected) -> None:
    there = OwnClaimServer(left_over("gpu-9"))
    with Scripted(there.answer) as server:
        assert outcome(connected(server.url), bind(2)) == BindDone("u", "n1")
    assert there.deleted == 1


def test_one_of_another_pod_is_left_alone(connected: Connected) -> None:
    there = OwnClaimServer(left_over("gpu-0", "other"))
    with Scripted(there.answer) as server:
        found = outcome(connected(server.url), bind(2))
    assert found == BindFailed("u", "n1", f"ResourceClaim {NAME} belongs to another pod")
    assert there.deleted == 0


def test_it_is_deleted_when_the_binding_fails(connected: Connected) -> None:
    there = OwnClaimServer()
    there.bound = failure(403, "denied by a webhook")
    with Scripted(there.answer) as server:
        found = outcome(connected(server.url), bind(2), until=lambda: there.deleted)
    assert found == BindFailed("u", "n1", "denied by a webhook")


def test_an_api_server_that_drops_the_status_fails_the_binding(connected: Connected) -> None:
    """The kubelet would start the containers without their devices."""
    there = OwnClaimServer(keeps=False)
    with Scripted(there.answer) as server:
        found = outcome(connected(server.url), bind(2), until=lambda: there.deleted)
    assert isinstance(found, BindFailed)
    assert "keeps no extendedResourceClaimStatus" in found.why
