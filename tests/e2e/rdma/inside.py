"""Runs as root under a kernel with the rdma controller and soft-RoCE HCAs rxe0 and rxe1: the agent's
own code sets limits of pods, and programs in the pods' cgroups run into them. Prints what came of it
as JSON. python -m tests.e2e.rdma.inside 1|2"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agent.cgroups import Cgroups
from agent.kubelet import checkpoint
from agent.machine import sysfs
from agent.nics.rdma_limits import RdmaLimitWriter, parse
from agent.node import AgentNode
from agent.resources.device_resource import Refused
from protos.names import RDMA
from protos.topology import Grant, RdmaLimit

ROOT = Path("/sys/fs/cgroup")
VERBS = Path(__file__).with_name("verbs.py")
SLICE = "kubepods.slice/kubepods-burstable.slice"


class Pod:
    """A pod that holds a share of rxe0, as a kubelet leaves it before its container starts."""

    def __init__(self, number: int, version: int) -> None:
        self.uid = f"0f3a8a52-6a51-4d0c-9f0e-00000000000{number}"
        self.share = f"rxe0::{number}"
        self.grant = Grant("team", f"p{number}", "main", RDMA, (self.share,))
        inside = f"{SLICE}/kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        kubelets = ROOT if version == 2 else ROOT / "memory"  # in v1 not in rdma's tree
        (kubelets / inside).mkdir(parents=True)
        self.folder = (ROOT if version == 2 else ROOT / "rdma") / inside

    @property
    def entry(self) -> dict[str, object]:
        ids = {"-1": [self.share]}
        return {
            "PodUID": self.uid,
            "ContainerName": "main",
            "ResourceName": RDMA,
            "DeviceIDs": ids,
            "AllocResp": "",
        }

    def container(self) -> Path:
        """What a runtime makes: a folder below the pod's, with its own controllers."""
        folder = self.folder / "container"
        folder.mkdir(exist_ok=True)
        return folder

    def start(self, opens: int, domains: int, card: str = "rxe0", hold: str = "") -> Any:
        asked = (card, str(opens), str(domains), str(self.container()), hold)
        command = [sys.executable, str(VERBS), *asked]
        program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        told = json.loads(program.stdout.readline())
        if hold:
            return program, told
        program.communicate()
        return told


def main(version: int) -> None:
    one, two = Pod(1, version), Pod(2, version)
    plugins = Path(tempfile.mkdtemp())
    data = {"Data": {"PodDeviceEntries": [one.entry, two.entry]}, "Checksum": 0}
    (plugins / checkpoint.NAME).write_text(json.dumps(data))
    node = AgentNode("n")
    node.set_grants((one.grant, two.grant))
    wish = (("hca_handle", 2), ("hca_object", 5))
    node.set_intents((Grant("team", "p1", "main", RDMA, ("rxe0",), wish),), 1)
    cgroups = Cgroups(ROOT)
    limits = RdmaLimitWriter(node, cgroups, plugins, RdmaLimit(64, 1000))
    said: dict[str, object] = {"version": cgroups.version()}

    for pod in (one, two):
        limits.pre_start((pod.share,), ("team", pod.grant.pod, "main"))
    said["max"] = [(pod.folder / "rdma.max").read_text() for pod in (one, two)]
    said["within"] = one.start(2, 5)
    said["too many handles"] = one.start(3, 0)
    said["too many objects"] = one.start(1, 6)
    said["other pod"] = two.start(4, 9)
    said["other card"] = one.start(4, 9, card="rxe1")

    program, _ = one.start(1, 3, hold="hold")
    said["use"] = [
        [use.pod, use.current.hca_handle, use.current.hca_object] for use in limits.keep()
    ]
    program.communicate()

    subprocess.run(["rdma", "link", "del", "rxe0"], check=True)
    said["away"] = [use.pod for use in limits.keep()]
    subprocess.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "dummy0"], check=True)
    said["back"] = parse((one.folder / "rdma.max").read_text())["rxe0"] == RdmaLimit()
    limits.keep()
    said["kept"] = parse((one.folder / "rdma.max").read_text())["rxe0"] == RdmaLimit(2, 5)
    said["still too many"] = one.start(3, 0)

    (one.folder.parent / "rdma.max").write_text("rxe0 hca_handle=1")
    try:
        limits.pre_start((one.share,), ("team", "p1", "main"))
    except Refused as refused:
        said["refused"] = str(refused)
    said["exclusive"] = [sysfs.read("/sys").rdma_exclusive, *_alone()]
    print(json.dumps(said))


def _alone() -> tuple[bool, str]:
    """With devices in network namespaces of their own: what the agent sees, and what another namespace
    may open."""
    subprocess.run(["rdma", "system", "set", "netns", "exclusive"], check=True)
    program = "import os; os.open('/dev/infiniband/uverbs1', os.O_RDWR)"
    away = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", program], capture_output=True, text=True
    )
    return sysfs.read("/sys").rdma_exclusive, away.stderr.strip().rpartition("[Errno ")[2][:1]


if __name__ == "__main__":
    main(int(sys.argv[1]))
