"""Volumes that are made once their pod has a node: written on the claim, waited for, then bound."""

from collections.abc import Callable
from typing import Any

import pytest

from central.core.decisions import Bind
from central.core.facts import BindDone, BindFailed, Fact
from central.kube.calls import Again
from central.kube.client import Client
from central.kube.effects import Effects
from central.kube.provisioning import Provisioning
from tests.central.kube.scripted import Answer, Call, Scripted, failure
from tests.fakes.patience import eventually

Connected = Callable[[str], Client]
Json = dict[str, Any]
ASKED = Bind("u", "default", "p", "n1", claims=("data",))


class Maker:
    """An API server with one claim, and whoever makes its volume after so many looks."""

    def __init__(self, looks: int = 1, fails: bool = False) -> None:
        self.annotations: dict[str, str] = {}
        self.volume = ""
        self.looks = looks
        self.fails = fails

    def answer(self, call: Call) -> Answer:
        if call.path.endswith("/binding"):
            assert self.volume, "bound before its volume was there"
            return Answer(201, {"kind": "Status", "status": "Success"})
        if call.method == "PATCH":
            self.annotations |= call.body["metadata"]["annotations"]
        elif self.annotations:
            self.looks -= 1
            if not self.looks and self.fails:
                self.annotations = {}
            elif not self.looks:
                self.volume = "v1"
                self.annotations["pv.kubernetes.io/bind-completed"] = "yes"
        meta = {"name": "data", "resourceVersion": "7", "annotations": dict(self.annotations)}
        return Answer(200, {"metadata": meta, "spec": {"volumeName": self.volume}})


class Gate:
    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()


def outcome(client: Client) -> Fact:
    facts: list[Fact] = []
    effects = Effects(client, facts.append, Gate(), workers=2)
    effects.submit([ASKED])
    eventually(lambda: facts)
    effects.stop()
    return facts[0]


def test_the_node_is_written_and_the_pod_bound_when_the_volume_is_there(
    connected: Connected,
) -> None:
    maker = Maker()
    with Scripted(maker.answer) as server:
        assert outcome(connected(server.url)) == BindDone("u", "n1")
        (patch,) = server.of("PATCH")
        assert patch.path == "/api/v1/namespaces/default/persistentvolumeclaims/data"
        assert patch.body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}
        assert patch.body["metadata"]["resourceVersion"] == "7"


def test_a_volume_that_cannot_be_made_there_frees_the_pod(connected: Connected) -> None:
    with Scripted(Maker(fails=True).answer) as server:
        why = "the volume of claim data could not be made for node n1"
        assert outcome(connected(server.url)) == BindFailed("u", "n1", why)


def test_what_is_being_made_for_another_pod_is_waited_for(connected: Connected) -> None:
    maker = Maker(looks=9)
    maker.annotations = {"volume.kubernetes.io/selected-node": "n2"}
    with Scripted(maker.answer) as server:
        volumes = Provisioning(connected(server.url))
        with pytest.raises(Again, match="claim data is still being made for node n2"):
            volumes.refusal(ASKED)
        assert not server.of("PATCH")


def test_a_claim_that_is_gone(connected: Connected) -> None:
    with Scripted(lambda call: failure(404, "not found")) as server:
        assert Provisioning(connected(server.url)).refusal(ASKED) == "claim data is gone"
