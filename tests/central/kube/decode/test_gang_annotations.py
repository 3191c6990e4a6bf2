"""Gangs without a PodGroup, from raw pods and controllers."""

from typing import Any

import pytest

from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.model.facts import OwnerGone, OwnerSeen
from central.model.json_types import Json
from central.standalone.apiserver import StandaloneApi
from protos import names
from tests.central.kube.api_fixtures import pod
from tests.fakes.eventually import eventually

READER = Decoder(["lockstep"], [names.RACK])


def owned(kind: str, name: str, **annotations: str) -> Json:
    owner = {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {
        **pod("p"),
        "metadata": {
            "namespace": "default",
            "name": "p",
            "uid": "uid-p",
            "ownerReferences": [owner],
            "annotations": annotations,
        },
    }


def controller(kind: str = "", name: str = "", **meta: Any) -> Json:
    above = [{"kind": kind, "name": name, "uid": "u", "controller": True}] if kind else []
    return {"metadata": {"name": "web-7d9", "uid": "u1", "ownerReferences": above, **meta}}


def test_a_pod_names_its_controller() -> None:
    seen = READER.pod(owned("ReplicaSet", "web-7d9"))
    assert (seen.gang, seen.owner, seen.owner_name) == ("", "uid-web-7d9", "replicaset/web-7d9")


def test_pods_of_operators_carry_the_minimum() -> None:
    seen = READER.pod(owned("PyTorchJob", "bert", **{names.OWNER_MIN: "4"}))
    assert (seen.gang_min, seen.owner_name) == (4, "pytorchjob/bert")


def test_a_pod_with_a_group_needs_no_controller() -> None:
    seen = READER.pod(owned("Job", "bert", **{names.GROUP_NAMES[0]: "g"}))
    assert (seen.gang, seen.owner) == ("g", "")


def test_a_minimum_without_a_gang_is_an_error() -> None:
    raw = owned("Job", "x", **{names.GANG_MIN: "4"})
    raw["metadata"]["ownerReferences"] = []
    assert READER.pod(raw).spec.unsupported == (
        "annotation lockstep.dev/gang-min: the pod has no controller, and no label lockstep.dev/gang"
    )


def test_a_minimum_may_be_a_label() -> None:
    raw = owned("Job", "x")
    raw["metadata"]["labels"] = {names.GANG_LABEL: "task", names.GANG_MIN: "6"}
    seen = READER.pod(raw)
    assert (seen.gang, seen.gang_min, seen.owner) == ("task", 6, "")


@pytest.mark.parametrize(
    ("kind", "above", "name"),
    [
        ("ReplicaSet", ("Deployment", "web"), "deployment/web"),
        ("Job", ("JobSet", "train"), "jobset/train"),
        ("Job", ("CronJob", "nightly"), ""),
        ("StatefulSet", ("LeaderWorkerSet", "serve"), ""),
        ("ReplicaSet", ("", ""), ""),
    ],
)
def test_the_controller_above_a_controller(kind: str, above: tuple[str, str], name: str) -> None:
    assert READER.owner(kind, controller(*above)).above == name


def test_annotations_of_a_controller() -> None:
    said = {
        names.OWNER_MIN: "3",
        names.QUEUE_NAME: "ml",
        names.TOPOLOGY_MODE: "hard",
        names.TOPOLOGY_TIER: "2",
        names.TOPOLOGY_REQUIRED: names.RACK,
    }
    assert READER.owner("Job", controller(annotations=said)) == OwnerSeen(
        "u1", "job/web-7d9", "", 3, "ml", names.RACK, 2
    )


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({names.OWNER_MIN: "0"}, 'group-min-member: "0" is not a whole number from 1 to 100000'),
        ({names.TOPOLOGY_MODE: "firm"}, 'network-topology-mode: "firm" is neither hard nor soft'),
        ({names.TOPOLOGY_TIER: "x"}, 'network-topology-highest-tier: "x" is not a whole number'),
        ({names.TOPOLOGY_REQUIRED: "x"}, 'topology-required: "x" is not a level'),
    ],
)
def test_invalid_annotations_are_reasons(annotations: dict[str, str], why: str) -> None:
    said = READER.owner("StatefulSet", controller(annotations=annotations))
    assert said.error.startswith("statefulset/web-7d9: annotation ")
    assert why in said.error
    raw = owned("Job", "x", **annotations)
    assert READER.pod(raw).spec.unsupported


def test_controllers_are_watched(api: StandaloneApi, client: Any, made: Any) -> None:
    facts: list[Any] = []
    owners = [one for one in api_kinds.kinds(READER) if one.metadata_only]
    watches = watch.start(owners, client, facts.append)
    try:
        assert watches.wait_synced(10)
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        meta = {"name": "web-7d9", "annotations": {names.OWNER_MIN: "3"}}
        uid = made(sets, {"metadata": meta})["metadata"]["uid"]
        eventually(lambda: facts, what="OwnerSeen")
        assert facts == [OwnerSeen(uid, "replicaset/web-7d9", gang_min=3, namespace="default")]
        client.request("DELETE", f"{sets}/web-7d9")
        eventually(lambda: len(facts) > 1, what="OwnerGone")
        assert facts[1] == OwnerGone(uid)
    finally:
        watches.stop()
