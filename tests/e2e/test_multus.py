"""Multus itself as the CNI plugin of a node: it takes the pod's device ids of the resource of a network from the
kubelet, hands each to the CNI plugin, and copies what the agent wrote of it into the pod's network-status. Only with
MULTUS, a folder with the programs multus and host-device, which are not part of this project."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protos.names import RAIL
from protos.topology import Hca
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import STATE
from tests.e2e.rollout import components, on
from tests.e2e.world import World, pod, until

PROGRAMS = Path(os.environ.get("MULTUS") or "/nonexistent")
NODE = "node-2"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (PROGRAMS / "multus").exists(), reason="no Multus (MULTUS=FOLDER)"),
]

NETWORKS = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
RAILS = (3, 6)


def definition(rail: int) -> dict[str, Any]:
    """A network that moves the interface of the device that Multus names into the pod."""
    config = {"cniVersion": "0.3.1", "name": f"rail-{rail}", "type": "host-device"}
    meta = {"name": f"rail-{rail}", "annotations": {RESOURCE: f"{RAIL}{rail}"}}
    return {
        **{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"},
        **{"metadata": meta, "spec": {"config": json.dumps(config)}},
    }


def resource_definition() -> dict[str, Any]:
    names = {"kind": "NetworkAttachmentDefinition", "plural": "network-attachment-definitions"}
    names |= {"singular": "network-attachment-definition"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    group = "k8s.cni.cncf.io"
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": f"{names['plural']}.{group}"}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": meta, "spec": spec}


@contextmanager
def multus(cluster: World) -> Iterator[Path]:
    """The node with Multus in front of its network; its log."""
    folder = STATE / NODE / "cni"
    programs, log = folder / "bin", STATE / NODE / "multus.log"
    programs.mkdir(exist_ok=True)
    for name in ("multus", "host-device"):
        shutil.copy(PROGRAMS / name, programs)
    config = {
        **{"cniVersion": "0.3.1", "name": "multus", "type": "multus"},
        **{"kubeconfig": str(verbs.kubeconfig()), "cniDir": "/run/multus"},
        **{"logFile": str(log), "logLevel": "debug"},
        "delegates": [json.loads((folder / "pods.conflist").read_text())],
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(resource_definition()))
    until("the kind", lambda: cluster.api.get("/apis/k8s.cni.cncf.io/v1"), 30)
    file = folder / "00-multus.conf"
    (folder / "new").write_text(json.dumps(config))
    (folder / "new").replace(file)
    try:
        yield log
    finally:
        file.unlink()
        cluster.kubectl("delete", "crd", resource_definition()["metadata"]["name"])


@contextmanager
def interfaces(rails: dict[int, str]) -> Iterator[None]:
    """Gives the NICs of these rails, by PCI address, an interface that is there, and the driver that host-device looks
    at."""
    tree, mounted = STATE / "hardware" / NODE / "sys", []
    try:
        for rail, address in rails.items():
            folder = (tree / "bus/pci/devices" / address).resolve()
            copy = STATE / NODE / f"nic{rail}"
            shutil.copytree(folder, copy, symlinks=True, dirs_exist_ok=True)
            (copy / "net" / f"net{rail}").mkdir(parents=True, exist_ok=True)
            if not (copy / "driver").is_symlink():
                (copy / "driver").mkdir(exist_ok=True)
            inside = f"/sys/{folder.relative_to(tree.resolve())}"
            on(NODE, "mount", "--bind", copy, inside)
            mounted.append(inside)
            verbs.find(NODE).ip(f"link add net{rail} type veth peer name peer{rail}")
        yield
    finally:
        for inside in mounted:
            on(NODE, "umount", inside)
        for rail in rails:
            on(NODE, "ip", "link", "del", f"peer{rail}")


def check(cluster: World, namespace: str, nics: dict[int, Hca], log: Path) -> None:
    cluster.apply(namespace, *map(definition, RAILS))

    member = pod("a", 8, node=NODE, script="env | sort; ls /sys/class/net; sleep 3600")
    limits = member["spec"]["containers"][0]["resources"]["limits"]
    limits |= {f"{RAIL}{rail}": 1 for rail in RAILS}
    member["metadata"]["annotations"][NETWORKS] = ", ".join(f"rail-{rail}" for rail in RAILS)
    cluster.apply(namespace, member)
    found = cluster.running(namespace, 1, 120)[0]

    told = json.loads(found["metadata"]["annotations"][STATUS])
    by_network = {each["name"].partition("/")[2]: each for each in told}
    for place, rail in enumerate(RAILS, 1):
        network, nic = by_network[f"rail-{rail}"], nics[rail]
        assert network["interface"] == f"net{place}"
        assert network["device-info"]["pci"]["pci-address"] == nic.pci
        assert network["device-info"]["pci"]["rdma-device"] == nic.name
        assert cluster.listed(NODE, f"{RAIL}{rail}") == {(namespace, "a"): [nic.pci]}
    printed = cluster.logs(namespace, "a")
    for place, rail in enumerate(RAILS, 1):
        assert f"LOCKSTEP_RAIL_{rail}={nics[rail].name}\n" in printed
        assert f"net{place}\n" in printed, "the interface is in the pod"
    here = on(NODE, "ip", "-o", "link")
    assert not any(f" net{rail}@" in here for rail in RAILS), "and no longer the node's"
    assert nics[RAILS[0]].pci in log.read_text()

    cluster.kubectl("-n", namespace, "delete", "pod", "a", "--wait=true")
    until("the interfaces to be back", lambda: " net3@" in on(NODE, "ip", "-o", "link"), 60)


def test_multus_hands_each_rail_to_its_network(cluster: World, namespace: str) -> None:
    flags = ("--rdma-rails=auto", "--rdma-shares=1")
    with components(cluster, "multus", agent_args=flags), multus(cluster) as log:
        until("the rails", lambda: cluster.allocatable(f"{RAIL}7")[NODE] == 1, 60)
        known = {hca.rail: hca for hca in cluster.topologies()[NODE].hcas}
        nics = {rail: known[f"{RAIL}{rail}"] for rail in RAILS}
        with interfaces({rail: nic.pci for rail, nic in nics.items()}):
            check(cluster, namespace, nics, log)
