"""Volumes in mode WaitForFirstConsumer: existing ones and those to be provisioned."""

from collections.abc import Callable

import pytest

from central.kube.transport.http_client import Client
from central.kube.write.executor import DecisionExecutor
from central.kube.write.retrying import Retry
from central.kube.write.volume_binding import VolumeBinder
from central.model.decisions import Bind
from central.model.facts import BindDone, BindFailed, Fact
from central.model.json_types import Json
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
ASKED = Bind("u", "default", "p", "n1", claims=(("data", ""),))


class Maker:
    """An API server with one claim, whose volume is provisioned after some requests."""

    def __init__(self, looks: int = 1, fails: bool = False) -> None:
        self.annotations: dict[str, str] = {}
        self.volume = ""
        self.looks = looks
        self.fails = fails

    def answer(self, call: Call) -> Answer:
        if call.path.endswith("/binding"):
            assert self.volume, "bound before its volume was there"
            return SUCCESS
        if call.path.endswith("/pods/p"):
            return pending_pod()
        if call.method == "PATCH":
            self.annotations |= call.body["metadata"]["annotations"]
        elif self.annotations:
            self.looks -= 1
            if not self.looks and self.fails:
                self.annotations = {}
            elif not self.looks:
                self.volume = "v1"
                self.annotations["pv.kubernetes.io/bind-completed"] = "yes"
        meta: Json = {"name": "data", "uid": "7", "resourceVersion": "7"}
        meta["annotations"] = dict(self.annotations)
        return Answer(200, {"metadata": meta, "spec": {"volumeName": self.volume}})


class Controller:
    """An API server with a claim and a volume, whose controller joins the two once the volume says whose
    it is."""

    def __init__(self) -> None:
        self.kept: Json | None = None
        self.bound = ""
        self.conflicts = 0

    def answer(self, call: Call) -> Answer:
        if call.path.endswith("/binding"):
            assert self.bound, "bound before its claim was"
            return SUCCESS
        if call.path.endswith("/pods/p"):
            return pending_pod()
        if call.path.endswith("/persistentvolumeclaims/data"):
            meta: Json = {"name": "data", "uid": "7", "resourceVersion": "70"}
            if self.bound:
                meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            return Answer(200, {"metadata": meta, "spec": {"volumeName": self.bound}})
        assert call.path == "/api/v1/persistentvolumes/v1"
        if call.method == "PATCH":
            assert call.body["metadata"]["resourceVersion"] == "3"
            if self.conflicts:
                self.conflicts -= 1
                return failure(409, "the object has been modified")
            assert call.body["metadata"]["annotations"] == {
                "pv.kubernetes.io/bound-by-controller": "yes"
            }
            self.kept = call.body["spec"]["claimRef"]
            self.bound = "v1"
        spec = {"claimRef": self.kept} if self.kept else {}
        return Answer(
            200, {"metadata": {"name": "v1", "uid": "3", "resourceVersion": "3"}, "spec": spec}
        )


class PlanGate:
    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()


def outcome(client: Client, asked: Bind = ASKED) -> Fact:
    facts: list[Fact] = []
    effects = DecisionExecutor(client, facts.append, PlanGate(), workers=2)
    effects.submit([asked])
    eventually(lambda: facts)
    effects.stop()
    return facts[0]


def test_the_pod_is_bound_when_its_volume_is_provisioned(connected: Connected) -> None:
    maker = Maker()
    with Scripted(maker.answer) as server:
        assert outcome(connected(server.url)) == BindDone("u", "n1")
        (patch,) = server.of("PATCH")
        assert patch.path == "/api/v1/namespaces/default/persistentvolumeclaims/data"
        assert patch.body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}
        assert patch.body["metadata"]["resourceVersion"] == "7"


def test_a_failed_provisioning_fails_the_binding(connected: Connected) -> None:
    with Scripted(Maker(fails=True).answer) as server:
        why = "the volume of claim data could not be provisioned for node n1"
        assert outcome(connected(server.url)) == BindFailed("u", "n1", why)


def test_a_binding_after_one_that_took_too_long_provisions_again(connected: Connected) -> None:
    """The first one is given up while its volume is provisioned; then the provisioner takes the node off the claim."""
    maker, facts = Maker(looks=9), list[Fact]()
    with Scripted(maker.answer) as server:
        effects = DecisionExecutor(connected(server.url), facts.append, PlanGate(), workers=2)
        effects.submit([ASKED])
        eventually(lambda: server.of("PATCH"))
        [ticket] = effects.tickets._open.values()
        ticket.deadline = 0.0
        eventually(lambda: facts)
        maker.annotations, maker.looks = {}, 1
        effects.submit([ASKED._replace(node="n2")])
        eventually(lambda: len(facts) == 2)
        effects.stop()
    assert [type(fact) for fact in facts] == [BindFailed, BindDone]


def test_provisioning_for_another_pod_is_awaited(connected: Connected) -> None:
    maker = Maker(looks=9)
    maker.annotations = {"volume.kubernetes.io/selected-node": "n2"}
    with Scripted(maker.answer) as server:
        volumes = VolumeBinder(connected(server.url))
        with pytest.raises(Retry, match="claim data is being provisioned for node n2"):
            volumes.bind_volumes(ASKED)
        assert not server.of("PATCH")


@pytest.mark.parametrize(("zone", "usable"), [("z1", True), ("z2", False)])
def test_a_volume_provisioned_for_another_pod_of_the_gang(
    connected: Connected, zone: str, usable: bool
) -> None:
    """Pods share a claim: the volume is provisioned for the node of one, and the other's may not reach it."""
    notes = {"volume.kubernetes.io/selected-node": "n2", "pv.kubernetes.io/bind-completed": "yes"}
    term = {"key": "zone", "operator": "In", "values": ["z1"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    answers: Json = {
        "/api/v1/namespaces/default/persistentvolumeclaims/data": {
            "metadata": {"name": "data", "uid": "1", "annotations": notes},
            "spec": {"volumeName": "v1"},
        },
        "/api/v1/persistentvolumes/v1": {
            "metadata": {"name": "v1", "uid": "2"},
            "spec": {"nodeAffinity": affinity},
        },
        "/api/v1/nodes/n1": {"metadata": {"name": "n1", "uid": "3", "labels": {"zone": zone}}},
    }

    def answer(call: Call) -> Answer:
        if call.path.endswith("/binding"):
            return SUCCESS
        if call.path.endswith("/pods/p"):
            return pending_pod()
        return Answer(200, answers[call.path])

    with Scripted(answer) as server:
        why = "claim data got volume v1, which node n1 cannot use"
        expected = BindDone("u", "n1") if usable else BindFailed("u", "n1", why)
        assert outcome(connected(server.url)) == expected
        assert len(server.of("POST")) == usable


GIVEN = ASKED._replace(claims=(("data", "v1"),))


@pytest.mark.parametrize("conflicts", [0, 1])
def test_the_claim_is_written_on_an_existing_volume(connected: Connected, conflicts: int) -> None:
    controller = Controller()
    controller.conflicts = conflicts
    with Scripted(controller.answer) as server:
        assert outcome(connected(server.url), GIVEN) == BindDone("u", "n1")
        assert len(server.of("PATCH")) == 1 + conflicts
        assert controller.kept == {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": "data",
            "uid": "7",
            "resourceVersion": "70",
        }


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ({"namespace": "default", "name": "other"}, "volume v1 was given to claim default/other"),
        (
            {"namespace": "default", "name": "data", "uid": "6"},
            "volume v1 belongs to an earlier claim data",
        ),
    ],
)
def test_a_volume_of_another_claim_fails_the_binding(
    connected: Connected, kept: Json, why: str
) -> None:
    controller = Controller()
    controller.kept = kept
    with Scripted(controller.answer) as server:
        assert outcome(connected(server.url), GIVEN) == BindFailed("u", "n1", why)
        assert not server.of("PATCH")


def test_a_claim_with_another_volume_fails_the_binding(connected: Connected) -> None:
    controller = Controller()
    controller.bound = "v2"
    with Scripted(controller.answer) as server:
        why = "claim data is bound to volume v2 instead of v1"
        assert outcome(connected(server.url), GIVEN) == BindFailed("u", "n1", why)


def test_a_claim_that_is_gone(connected: Connected) -> None:
    with Scripted(lambda _: missing("persistentvolumeclaims", "data")) as server:
        assert VolumeBinder(connected(server.url)).bind_volumes(ASKED) == "claim data is gone"
