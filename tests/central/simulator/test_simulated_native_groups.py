"""PodGroups of scheduling.k8s.io in scenarios."""

from typing import Any

from protos.names import RACK
from tests.central.simulator.device_objects import (
    asks,
    claiming,
    device_class,
    devices,
    resource_claim,
    template,
)
from tests.central.simulator.manifests import Simulate, node, pod

Json = dict[str, Any]


def group(name: str, least: int, version: str = "v1alpha2", **spec: Any) -> Json:
    policy = {"gang": {"minCount": least}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": {"lockstep.dev/runs-for": "1m"}},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(name: str, of: str) -> Json:
    made = pod(name, 8)
    made["spec"]["schedulingGroup"] = {"podGroupName": of}
    return made


def test_a_gang_in_one_rack(simulate: Simulate) -> None:
    nodes = [node(f"n{i}", rack=f"r{i // 2}") for i in range(4)]
    constraint = {"topology": [{"key": RACK}]}
    found = simulate(
        *nodes,
        group("train", 2, schedulingConstraints=constraint),
        *(member(f"train-{i}", "train") for i in range(2)),
        group("big", 3, "v1beta1", schedulingConstraints=constraint),
        *(member(f"big-{i}", "big") for i in range(3)),
    )
    places = {placed["pod"]: placed["node"] for placed in found["placements"]}
    assert set(places) == {"train-0", "train-1"}
    assert len({name[1] in "01" for name in places.values()}) == 1
    [waiting] = found["waiting"]
    assert waiting["name"] == "podgroup/big"
    assert "rack" in waiting["reason"]
    [ended] = [one for one in found["ended"] if one["name"] == "podgroup/train"]
    assert ended["at_s"] == 60


def test_the_pods_of_a_group_share_its_claim(simulate: Simulate) -> None:
    """One device for the group, and one for each pod."""
    entries = [
        {"name": "both", "resourceClaimTemplateName": "both"},
        {"name": "fixed", "resourceClaimName": "fixed"},
    ]
    members = [claiming(member(f"g-{i}", "g"), "both", "own", claims=("fixed",)) for i in range(3)]
    found = simulate(
        node("a", rack="r0"),
        node("b", gpus=24, rack="r0"),
        devices("a", 8),
        devices("b", 5),
        device_class(),
        *(template(name, asks()) for name in ("both", "own")),
        resource_claim("fixed", asks()),
        group("g", 3, "v1beta1", resourceClaims=entries),
        *members,
    )
    places = {placed["pod"]: placed["node"] for placed in found["placements"]}
    assert places == {f"g-{i}": "b" for i in range(3)}
