"""Versions as people type them and as API servers write them; what an empty spread selector counts."""

import pytest

from central.kube.decode.decoder import Decoder
from central.kube.decode.kubernetes_version import (
    NEWEST,
    KubernetesVersion,
    UnknownVersion,
    served_version,
    typed_version,
)
from central.model.json_types import Json

POD = {"schedulerName": "lockstep", "containers": [{"name": "c", "image": "i"}]}


@pytest.mark.parametrize(
    ("text", "minor"), [("1.36", 36), ("v1.27.3", 27), ("v1.33.5-gke.100", 33), ("1.9", 9)]
)
def test_a_typed_version(text: str, minor: int) -> None:
    assert typed_version(text) == (1, minor)


@pytest.mark.parametrize("text", ["", "1", "newest", "1.x", "1.36 ", "1.1234", "1.36.0\n", "-1.3"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UnknownVersion, match=r"such as 1\."):
        typed_version(text)


def test_what_api_servers_say_of_themselves() -> None:
    assert served_version({"major": "1", "minor": "20"}) == (1, 20)
    assert served_version({"major": "1", "minor": "27+"}) == (1, 27)  # EKS, GKE
    wrong: list[Json] = [{}, {"major": "1", "minor": ""}, {"major": 1, "minor": "3"}]
    for document in [*wrong, {"major": "1", "minor": 36}, {"major": "1" * 400, "minor": "3"}]:
        with pytest.raises(UnknownVersion):
            served_version(document)


@pytest.mark.parametrize(
    ("minor", "constraint", "counts"),
    [
        (26, {"labelSelector": {}}, True),
        (27, {"labelSelector": {}}, False),
        (36, {"labelSelector": {"matchLabels": {}, "matchExpressions": []}}, False),
        (36, {"labelSelector": {"matchLabels": {"app": "a"}}}, True),
        (36, {"labelSelector": {}, "matchLabelKeys": ["app"]}, True),
        (36, {"labelSelector": {}, "matchLabelKeys": ["absent"]}, False),
        (26, {}, False),
        (36, {}, False),
    ],
)
@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_an_empty_spread_selector(minor: int, constraint: Json, counts: bool, when: str) -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": when, **constraint}
    raw: Json = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"app": "a"}},
        "spec": {**POD, "topologySpreadConstraints": [spread]},
    }
    rules = Decoder(("lockstep",), (), KubernetesVersion(1, minor)).pod(raw).spec.rules
    assert rules is not None
    (found,) = rules.spread or rules.even
    assert found.peers.match("d", {"app": "a"}, {}, leaving=False) == counts


def test_an_empty_selector_of_an_affinity_term_selects_all_in_every_version() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    raw: Json = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {**POD, "affinity": affinity},
    }
    rules = Decoder(("lockstep",), (), NEWEST).pod(raw).spec.rules
    assert rules is not None
    assert rules.apart[0].peers.match("d", {}, {}, leaving=False)
