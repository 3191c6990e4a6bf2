"""The ResourceSlices of a node: valid for the API server, written again only for what changed, and without a device that
must not be allocated."""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.machine import capture
from agent.machine.survey import survey
from central.kube.decode.device_claim_decoder import decode_slice
from central.kube.write import slice_writer
from central.model.device_claims import SliceSeen
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.server.published_nodes.published_devices import slices_of
from protos import nearest
from protos.topology import Gpu, Grant, NodeTopology, Slice
from tests.central import factories

CAPTURES = sorted((Path(__file__).parents[3] / "captures").glob("*.json"))
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
NAME = re.compile(rf"({DOMAIN}/)?[A-Za-z_][A-Za-z0-9_]{{0,31}}")
TAINT = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")


def node(topology: NodeTopology, *grants: Grant, mode: str = "beside") -> ClusterNode:
    made = ClusterNode("n1")
    made.seen = factories.node("n1")
    made.apply_report(replace(factories.report("n1", topology, grants=grants), claims=mode))
    return made


def written(one: SliceSeen) -> dict[str, Any]:
    return {"metadata": {"name": one.name, "uid": "u"}, "spec": slice_writer._spec(one)}


def check(one: SliceSeen) -> None:
    """The rules of ValidateResourceSlice (k8s.io/kubernetes, pkg/apis/resource/validation)."""
    spec = written(one)["spec"]
    assert re.fullmatch(DOMAIN, one.name)
    assert spec["pool"]["name"] == spec["nodeName"] == "n1"
    assert 0 < len(spec["devices"]) <= 64, "the most devices of a slice with taints"
    assert len({each["name"] for each in spec["devices"]}) == len(spec["devices"])
    for device in spec["devices"]:
        assert LABEL.fullmatch(device["name"])
        assert len(device["attributes"]) + len(device["capacity"]) <= 32
        assert all(NAME.fullmatch(name) for name in (*device["attributes"], *device["capacity"]))
        for value in device["attributes"].values():
            ((kind, found),) = value.items()
            assert type(found) is {"int": int}.get(kind, str)
            assert len(str(found).encode()) <= 64
            assert kind != "version" or VERSION.fullmatch(str(found))
        for taint in device.get("taints", ()):
            assert taint["effect"] == "NoSchedule"
            assert TAINT.fullmatch(taint.get("value", ""))
            assert re.fullmatch(rf"{DOMAIN}/[a-z-]+", taint["key"])


def reread(one: SliceSeen, rng: random.Random) -> SliceSeen:
    """The slice as the watch shows it: maps in another order, quantities as the API server spells them."""
    raw = written(one)
    for device in raw["spec"]["devices"]:
        for part in ("attributes", "capacity"):
            items = [*device[part].items()]
            rng.shuffle(items)
            device[part] = dict(items)
        memory = device["capacity"]["memory"]
        if memory["value"].endswith("Mi") and int(memory["value"][:-2]) % 1024 == 0:
            memory["value"] = f"{int(memory['value'][:-2]) // 1024}Gi"
    return decode_slice(raw)


def only(made: ClusterNode) -> dict[str, Any]:
    """The devices of the node's only slice, by name."""
    (one,) = slices_of(made, ())
    check(one)
    return {each["name"]: each for each in written(one)["spec"]["devices"]}


def tainted(made: ClusterNode) -> dict[str, list[str]]:
    found = {name: each.get("taints", ()) for name, each in only(made).items()}
    return {
        name: [each["key"].partition("/")[2] + "=" + each.get("value", "") for each in taints]
        for name, taints in found.items()
        if taints
    }


def sick(topology: NodeTopology, index: int, why: str) -> NodeTopology:
    gpus = [replace(g, healthy=False, why=why) if g.index == index else g for g in topology.gpus]
    return replace(topology, gpus=tuple(gpus))


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: file.stem)
def test_machines_make_valid_slices_that_stay_as_they_are(file: Path) -> None:
    topology = survey(capture.load(file))
    made = node(topology)
    found = slices_of(made, ())
    for one in found:
        check(one)
    devices = [gpu for gpu in topology.gpus if not gpu.mig]
    assert sum(len(one.devices) for one in found) == len(devices) + sum(
        len(gpu.slices) for gpu in topology.gpus
    )
    seen = [reread(one, random.Random(7)) for one in found]
    assert slices_of(made, seen) == seen


def test_a_device_says_what_and_where_it_is() -> None:
    (file,) = (each for each in CAPTURES if each.stem == "hgx-h100-8")
    device = next(iter(only(node(survey(capture.load(file)))).values()))
    attributes = device["attributes"]
    uuid = attributes.pop("uuid")["string"]
    assert device["name"] == "gpu-" + uuid.removeprefix("GPU-")
    assert attributes == {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "index": {"int": 0},
        "numaNode": {"int": 0},
        "island": {"int": 0},
        "switch": {"int": 0},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        "cudaComputeCapability": {"version": "9.0.0"},
    }
    assert device["capacity"] == {"memory": {"value": "81920Mi"}}


def test_rails_are_published_where_nics_are_offered_by_rail() -> None:
    (file,) = (each for each in CAPTURES if each.stem == "hgx-h100-8")
    topology = survey(capture.load(file))
    hcas = [replace(h, rail=f"lockstep.dev/rail-{i}") for i, h in enumerate(topology.hcas)]
    found = only(node(replace(topology, hcas=tuple(hcas))))
    rails = [each["attributes"]["rail"]["int"] for each in found.values()]
    near = [nearest.adjacent_nics(topology, 1 << gpu) for gpu in range(8)]
    assert [(topology.hcas[rail].name,) for rail in rails] == near
    assert len(set(rails)) == 8


def test_an_unhealthy_gpu_is_tainted_with_its_reason() -> None:
    topology = factories.topology(4)
    for why, value in (
        ("XID 79: the GPU has fallen off the bus", "xid-79"),
        ("a row is to be remapped: reset the GPU (cleared; held down for 300 s)", None),
        ("!" * 200, ""),
        ("long " * 40, None),
    ):
        ((name, (taint,)),) = tainted(node(sick(topology, 1, why))).items()
        assert name == "gpu-1"
        assert taint.startswith("unhealthy=")
        assert "held" not in taint
        assert value is None or taint == f"unhealthy={value}"


def test_gpus_of_device_plugin_pods_are_tainted() -> None:
    topology = factories.topology(4, shares=True)
    share = Grant("ns", "s", "main", "lockstep.dev/gpu-share", ("GPU-3",), (("share", 50),))
    made = node(topology, factories.grant("p", 0), share)
    planned = Pod(factories.pod("q"), factories.pod("q").spec, node="n1", gpus=0b10)
    made.pods["q"] = planned
    made.reconcile_devices(lambda _: None)
    planned.gpus = 0b10
    assert tainted(made) == {name: ["device-plugin="] for name in ("gpu-0", "gpu-1", "gpu-3")}


def test_mig_slices_are_devices_of_their_own() -> None:
    parts = tuple(
        Slice(f"MIG-{n}", "1g.10gb", n, 0, 10 << 30, healthy=n != 2, why="gone" if n == 2 else "")
        for n in range(7)
    )
    whole = factories.topology(2)
    topology = replace(whole, gpus=(whole.gpus[0], replace(whole.gpus[1], mig=True, slices=parts)))
    held = Grant("ns", "p", "main", "nvidia.com/mig-1g.10gb", ("MIG-4",))
    made = node(topology, held)
    found = only(made)
    assert [*found] == ["gpu-0", *(f"mig-{n}" for n in range(7))]
    one = found["mig-3"]["attributes"]
    assert one["profile"] == {"string": "1g.10gb"}
    assert one["parentUUID"] == {"string": "GPU-1"}
    assert one["index"] == {"int": 1}
    assert tainted(made) == {"mig-2": ["unhealthy=gone"], "mig-4": ["device-plugin="]}
    lost = node(sick(topology, 1, "XID 79"))
    assert len(tainted(lost)) == 7


def big(count: int) -> NodeTopology:
    whole = factories.topology(1)
    gpus = tuple(replace(whole.gpus[0], index=n, uuid=f"GPU-{n}") for n in range(count))
    links = tuple(("SYS",) * count for _ in range(count))
    return replace(whole, gpus=gpus, links=links, islands=tuple((n,) for n in range(count)))


@pytest.mark.parametrize(("gpus", "slices"), [(0, 0), (1, 1), (64, 1), (65, 2), (129, 3)])
def test_a_pool_has_as_many_slices_as_it_needs(gpus: int, slices: int) -> None:
    found = slices_of(node(big(gpus)), ())
    assert [one.slices for one in found] == [slices] * slices
    assert len({one.name for one in found}) == slices
    for one in found:
        check(one)


def test_the_generation_of_all_slices_grows_with_each_change() -> None:
    rng = random.Random(3)
    before = [reread(one, rng) for one in slices_of(node(big(70)), ())]
    assert {one.generation for one in before} == {1}
    changed = slices_of(node(sick(big(70), 69, "XID 48")), before)
    assert {one.generation for one in changed} == {2}
    # Only one of them was written when the leader changed: the pool is incomplete, and is written as a whole.
    half = [reread(changed[0], rng), before[1]]
    assert {one.generation for one in slices_of(node(sick(big(70), 69, "XID 48")), half)} == {3}
    assert {one.generation for one in slices_of(node(big(1)), before)} == {2}


def withdrawn() -> Iterator[ClusterNode]:
    yield node(factories.topology(2), mode="")
    silent = node(factories.topology(2))
    silent.silent = True
    yield silent
    gone = node(factories.topology(2))
    gone.seen = None
    yield gone
    unknown = ClusterNode("n1")
    unknown.seen = factories.node("n1")
    yield unknown


@pytest.mark.parametrize("made", [*withdrawn()], ids=["off", "silent", "no node", "no report"])
def test_nothing_is_published_without_an_agent_that_serves_claims(made: ClusterNode) -> None:
    before = slices_of(node(factories.topology(2)), ())
    assert slices_of(made, before) == []


def test_a_strange_report_makes_valid_slices_or_none() -> None:
    strange = "ü" * 60
    gpu = Gpu(0, "GPU-odd/uuid", strange, 0, "x", capability="٩.x", clique=strange)
    other = replace(gpu, index=1, uuid="GPU-1", healthy=False, why=strange)
    topology = replace(factories.topology(2), gpus=(gpu, other))
    assert [*only(node(topology))] == ["gpu-1"]
