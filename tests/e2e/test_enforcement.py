"""GPUs shared by MPS on a real kubelet: configured while the cluster runs, one by one."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protos import names
from tests.e2e.test_shares import part
from tests.e2e.world import NAMESPACE, World, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = "node-1"
CONFIG = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SCRIPT = "env | sort; ls -l /tmp/nvidia-mps; sleep 3600"


@pytest.fixture
def shared_by_mps(cluster: World) -> Iterator[None]:
    """The first four GPUs of the node."""
    meta = {"name": "lockstep-sharing"}
    cluster.api.create(CONFIG, {"metadata": meta, "data": {NODE: "0-3: mps\n4-7: auto\n"}})
    yield
    cluster.api.call("DELETE", f"{CONFIG}/lockstep-sharing")
    until("as it was", lambda: levels(cluster) == ["watch"] * 8, 120)


def levels(cluster: World) -> list[str]:
    return [gpu.enforcement for gpu in cluster.topologies()[NODE].gpus]


def capped(name: str, level: str) -> dict[str, Any]:
    made = part(name, 30, node=NODE, script=SCRIPT)
    made["metadata"]["annotations"] |= {names.GPU_MEMORY: "4Gi", names.GPU_MEMORY_LEVEL: level}
    return made


def daemons() -> list[int]:
    """Control daemons, on whichever node."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
            environment = (file.parent / "environ").read_bytes()
        except OSError:
            continue
        ours = b"CUDA_MPS_PIPE_DIRECTORY=/run/lockstep/sharing/" in environment and b"-f" in words
        if ours and any(word.endswith(b"nvidia-cuda-mps-control") for word in words):
            found.append(int(file.parent.name))
    return found


def test_mps_for_who_asks_for_it(cluster: World, shared_by_mps: None, namespace: str) -> None:
    until("each GPU's own level", lambda: levels(cluster) == ["mps"] * 4 + ["watch"] * 4, 120)
    assert not daemons()
    cluster.apply(
        namespace, capped("sure", "mps"), capped("any", "none"), capped("never", "kernel")
    )
    until("two to run", lambda: running(cluster, namespace) == {"sure", "any"})
    told = cluster.environment(namespace, "sure")
    assert told["LOCKSTEP_GPU_ENFORCEMENT"] == "mps"
    assert int(told["LOCKSTEP_GPUS"]) < 4
    assert told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert " control" in cluster.logs(namespace, "sure")  # the daemon's socket is there
    said = cluster.lockstep("explain", f"{namespace}/never")
    assert "GPU memory enforcement is mps" in said
    assert "mps" in cluster.lockstep("topology", NODE)

    # Its daemon dies: no more shares of that GPU until it is back; who runs is left alone.
    (daemon,) = daemons()
    os.kill(daemon, signal.SIGKILL)
    until("another daemon", lambda: [pid for pid in daemons() if pid != daemon], 60)
    assert running(cluster, namespace) == {"sure", "any"}

    # A new agent finds all as it is.
    server = daemons()
    agent = cluster.agent_on(NODE)["metadata"]["name"]
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", agent)
    until("the agent to be back", lambda: cluster.agent_on(NODE)["metadata"]["name"] != agent)
    until("its report", lambda: levels(cluster)[:4] == ["mps"] * 4, 60)
    assert daemons() == server
    cluster.kubectl("-n", namespace, "delete", "pod", "sure", "any", "never")
    until("the daemon to have ended", lambda: not daemons(), 60)
    until("whole GPUs", lambda: cluster.allocatable()[NODE] == 8, 60)


def running(cluster: World, namespace: str) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in cluster.pods(namespace)
        if each["status"]["phase"] == "Running"
    }
