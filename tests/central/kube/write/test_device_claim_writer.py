"""Allocations are written to claims before their pod is bound, and taken back after a failed binding."""

from collections.abc import Callable
from uuid import UUID

import pytest

from central.kube.transport.http_client import Client
from central.kube.write.executor import DecisionExecutor
from central.model.decisions import Bind
from central.model.device_claims import AllocatedDevice, ClaimAllocation
from central.model.facts import BindDone, BindFailed, Fact
from central.model.json_types import Json
from central.model.pod_rules import Requirement
from tests.central.kube.scripted_api import (
    SUCCESS,
    Answer,
    Call,
    Scripted,
    failure,
    missing,
    pending_pod,
)
from tests.fakes.eventually import eventually

Connected = Callable[[str], Client]
OWN = (((Requirement("metadata.name", "In", ("n1",), field=True),),),)
GIVEN = AllocatedDevice("gpu", "gpu.example", "n1", "gpu-0")
BIND = Bind("u", "default", "p", "n1", device_claims=(ClaimAllocation("c", "7", (GIVEN,), OWN),))
PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
PARAMETERS = {"opaque": {"driver": "gpu.example", "parameters": {"a": 1}}}
OTHERS = {"resource": "pods", "name": "q", "uid": "other"}


class ClaimServer:
    """An API server with one claim and its class."""

    def __init__(self, **status: object) -> None:
        self.status: Json = dict(status)
        self.finalizers: list[str] = []
        self.version = 1
        self.conflicts = 0
        self.bound = SUCCESS

    def claim(self) -> Json:
        exactly = {"deviceClassName": "gpus", "tolerations": [{"operator": "Exists"}]}
        asked = {"requests": [{"name": "gpu", "exactly": exactly}], "config": [PARAMETERS]}
        meta = {"name": "c", "uid": "7", "resourceVersion": str(self.version)}
        return {
            "kind": "ResourceClaim",
            "metadata": {**meta, "finalizers": self.finalizers},
            "spec": {"devices": asked},
            "status": self.status,
        }

    def answer(self, call: Call) -> Answer:
        if call.path.endswith("/binding"):
            assert any(user["uid"] == "u" for user in self.status.get("reservedFor", ()))
            return self.bound
        if call.path.endswith("/pods/p"):
            return pending_pod()
        if call.path.endswith("/deviceclasses/gpus"):
            meta = {"name": "gpus", "uid": "8"}
            return Answer(200, {"metadata": meta, "spec": {"config": [PARAMETERS]}})
        assert call.path in (PATH, f"{PATH}/status")
        if call.method == "PATCH":
            if self.conflicts or call.body["metadata"]["resourceVersion"] != str(self.version):
                self.conflicts -= 1
                return failure(409, "the object has been modified")
            self.version += 1
            self.finalizers = call.body["metadata"].get("finalizers", self.finalizers)
            for key, value in call.body.get("status", {}).items():
                self.status.pop(key, None)
                if value is not None:
                    self.status[key] = value
        return Answer(200, self.claim())


def outcome(client: Client, asked: Bind = BIND, until: Callable[[], object] = lambda: True) -> Fact:
    facts: list[Fact] = []
    effects = DecisionExecutor(client, facts.append, PlanGate(), workers=2)
    effects.submit([asked])
    eventually(lambda: facts and until())
    effects.stop()
    return facts[0]


class PlanGate:
    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()


@pytest.mark.parametrize("conflicts", [0, 1])
def test_the_allocation_is_written_before_the_pod_is_bound(
    connected: Connected, conflicts: int
) -> None:
    there = ClaimServer()
    there.conflicts = conflicts
    with Scripted(there.answer) as server:
        assert outcome(connected(server.url)) == BindDone("u", "n1")
    assert there.finalizers == ["resource.kubernetes.io/delete-protection"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert there.status == {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpu",
                        "driver": "gpu.example",
                        "pool": "n1",
                        "device": "gpu-0",
                        "tolerations": [{"operator": "Exists"}],
                    }
                ],
                "config": [
                    {"source": "FromClass", **PARAMETERS},
                    {"source": "FromClaim", **PARAMETERS},
                ],
            },
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }


def allocation(device: str) -> Json:
    return {"devices": {"results": [{**GIVEN._asdict(), "device": device}]}}


def test_a_pod_joins_the_users_of_a_claim(connected: Connected) -> None:
    there = ClaimServer(allocation=allocation("gpu-0"), reservedFor=[OTHERS])
    with Scripted(there.answer) as server:
        joins = BIND._replace(device_claims=(ClaimAllocation("c", "7"),))
        assert outcome(connected(server.url), joins) == BindDone("u", "n1")
    assert [user["uid"] for user in there.status["reservedFor"]] == ["other", "u"]
    assert there.status["allocation"] == allocation("gpu-0")


@pytest.mark.parametrize(
    ("status", "planned", "why"),
    [
        ({"allocation": allocation("gpu-1")}, (GIVEN,), "got other devices meanwhile"),
        ({}, (), "is not allocated"),
    ],
)
def test_a_lost_race_fails_the_binding(
    connected: Connected, status: Json, planned: tuple[AllocatedDevice, ...], why: str
) -> None:
    there = ClaimServer(**status)
    with Scripted(there.answer) as server:
        asked = BIND._replace(device_claims=(ClaimAllocation("c", "7", planned),))
        found = outcome(connected(server.url), asked)
    assert found == BindFailed("u", "n1", f"ResourceClaim c {why}")
    assert there.status == status


@pytest.mark.parametrize(
    ("uid", "deleting", "why"), [("8", False, "is gone"), ("7", True, "is being deleted")]
)
def test_another_claim_of_the_name_is_left_alone(
    connected: Connected, uid: str, deleting: bool, why: str
) -> None:
    there = ClaimServer()

    def answer(call: Call) -> Answer:
        found = there.answer(call)
        if call.path == PATH and isinstance(found.body, dict):
            found.body["metadata"]["uid"] = uid
            if deleting:
                found.body["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
        return found

    with Scripted(answer) as server:
        found = outcome(connected(server.url))
        assert found == BindFailed("u", "n1", f"ResourceClaim c {why}")
        assert not server.of("PATCH")


def test_a_claim_that_is_gone_fails_the_binding(connected: Connected) -> None:
    def answer(call: Call) -> Answer:
        if call.path.endswith("/pods/p"):
            return pending_pod()
        return missing("resourceclaims.resource.k8s.io", "c")

    with Scripted(answer) as server:
        found = outcome(connected(server.url))
    assert found == BindFailed("u", "n1", "ResourceClaim c is gone")


def test_admin_access_is_written(connected: Connected) -> None:
    there = ClaimServer()
    planned = ClaimAllocation("c", "7", (GIVEN._replace(admin=True),), OWN)
    admin = Bind("u", "default", "p", "n1", device_claims=(planned,))
    with Scripted(there.answer) as server:
        assert outcome(connected(server.url), admin) == BindDone("u", "n1")
    (result,) = there.status["allocation"]["devices"]["results"]
    assert result["adminAccess"] is True


def test_a_share_is_written_with_what_it_consumes(connected: Connected) -> None:
    """Each with an id of its own, by which the driver knows it. An attempt that was written before is known again."""
    there = ClaimServer()
    shares = (GIVEN._replace(consumed=(("memory", "1"),)), GIVEN._replace(consumed=()))
    asked = BIND._replace(device_claims=(ClaimAllocation("c", "7", shares, OWN),))
    with Scripted(there.answer) as server:
        assert outcome(connected(server.url), asked) == BindDone("u", "n1")
        one, other = there.status["allocation"]["devices"]["results"]
        del there.status["reservedFor"]
        assert outcome(connected(server.url), asked) == BindDone("u", "n1")
    assert there.status["allocation"]["devices"]["results"] == [one, other]
    assert UUID(one["shareID"]) != UUID(other["shareID"])
    assert one["consumedCapacity"] == {"memory": "1"}
    assert "consumedCapacity" not in other


READY, BROKEN = "Attached", "AttachFailed"
WAITS = BIND._replace(
    device_claims=(ClaimAllocation("c", "7", (GIVEN._replace(conditions=((READY,), (BROKEN,))),)),)
)


class AttachedLater(ClaimServer):
    """A device whose condition is set when its claim has been read so often."""

    def __init__(self, condition: str, reads: int) -> None:
        super().__init__()
        self.condition, self.reads, self.bindings = condition, reads, 0

    def answer(self, call: Call) -> Answer:
        if call.path == PATH and call.method == "GET" and self.status.get("allocation"):
            self.reads -= 1
            if not self.reads:
                told = {"type": self.condition, "status": "True", "message": "no cable"}
                self.status["devices"] = [{**GIVEN._asdict(), "conditions": [told]}]
        if call.path.endswith("/binding"):
            self.bindings += 1
            assert self.reads <= 0
        return super().answer(call)


def test_the_pod_is_bound_when_its_devices_are_ready(connected: Connected) -> None:
    """It takes longer than other requests are repeated."""
    there, facts = AttachedLater(READY, 2), list[Fact]()
    with Scripted(there.answer) as server:
        client = connected(server.url)
        effects = DecisionExecutor(client, facts.append, PlanGate(), workers=2, retry_for_s=0.1)
        effects.submit([WAITS])
        eventually(lambda: facts)
        effects.stop()
    assert facts == [BindDone("u", "n1")]
    assert there.bindings == 1
    (result,) = there.status["allocation"]["devices"]["results"]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([READY], [BROKEN])
    assert there.status["allocation"]["allocationTimestamp"].endswith("Z")


def test_a_device_that_fails_is_given_back(connected: Connected) -> None:
    there = AttachedLater(BROKEN, 1)
    with Scripted(there.answer) as server:
        found = outcome(connected(server.url), WAITS)
    why = "device gpu.example/n1/gpu-0 failed: condition AttachFailed is True (no cable)"
    assert found == BindFailed("u", "n1", f"ResourceClaim c: {why}")
    assert "allocation" not in there.status
    assert not there.bindings


def test_an_allocation_that_fails_is_taken_back_whoever_made_it(connected: Connected) -> None:
    """But not while another pod uses it."""
    named = {"request": "gpu", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
    result = {**named, "bindingConditions": [READY], "bindingFailureConditions": [BROKEN]}
    told = [{**named, "conditions": [{"type": BROKEN, "status": "True", "reason": "Cable"}]}]
    for others in ([], [OTHERS]):
        there = ClaimServer(
            allocation={"devices": {"results": [result]}}, devices=told, reservedFor=list(others)
        )
        with Scripted(there.answer) as server:
            joins = BIND._replace(device_claims=(ClaimAllocation("c", "7"),))
            found = outcome(connected(server.url), joins)
        assert isinstance(found, BindFailed)
        assert ("allocation" in there.status) == bool(others)
        assert there.status.get("reservedFor", []) == others


def test_devices_are_released_when_the_binding_fails(connected: Connected) -> None:
    there = ClaimServer()
    there.bound = failure(403, "denied by a webhook")
    with Scripted(there.answer) as server:
        found = outcome(connected(server.url), until=lambda: there.status == {})
    assert found == BindFailed("u", "n1", "denied by a webhook")


@pytest.mark.parametrize("conflicts", [1, 9])
def test_the_outcome_is_told_after_the_release(connected: Connected, conflicts: int) -> None:
    """A later binding of the pod could else rely on an allocation that is about to be taken back."""
    there = ClaimServer()

    def answer(call: Call) -> Answer:
        if call.path.endswith("/binding"):
            there.conflicts = conflicts
            return failure(403, "denied by a webhook")
        return there.answer(call)

    with Scripted(answer) as server:
        found = outcome(connected(server.url))
        attempts = len([call for call in server.of("PATCH") if "allocation" in str(call.body)])
    assert found == BindFailed("u", "n1", "denied by a webhook")
    assert (there.status == {}) == (conflicts == 1), "after four attempts it is told anyway"
    assert attempts == (3 if conflicts == 1 else 5)


def test_a_claim_of_a_podgroup_is_reserved_for_it(connected: Connected) -> None:
    """It stays so when the binding of one of its pods fails, because others may use it."""
    there = ClaimServer()
    there.bound = failure(403, "denied by a webhook")
    shared = BIND.device_claims[0]._replace(group=("g", "g-uid"))

    def answer(call: Call) -> Answer:
        return there.bound if call.path.endswith("/binding") else there.answer(call)

    with Scripted(answer) as server:
        for _ in range(2):
            found = outcome(connected(server.url), BIND._replace(device_claims=(shared,)))
            assert found == BindFailed("u", "n1", "denied by a webhook")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid"}
    assert there.status["reservedFor"] == [group]
    assert "allocation" in there.status


def test_a_claim_with_other_users_stays_allocated(connected: Connected) -> None:
    there = ClaimServer(allocation=allocation("gpu-0"), reservedFor=[OTHERS])
    there.bound = failure(403, "denied by a webhook")
    with Scripted(there.answer) as server:
        outcome(connected(server.url), until=lambda: there.status["reservedFor"] == [OTHERS])
    assert there.status["allocation"] == allocation("gpu-0")
