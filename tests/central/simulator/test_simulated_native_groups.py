"""PodGroups of scheduling.k8s.io in scenarios."""

from typing import Any

from protos.names import RACK
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
