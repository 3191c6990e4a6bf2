"""Fake hardware for real nodes: a captured machine as a library with NVML's ABI where a driver
container would put it, and as a tree to lay over the node's /sys."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.cluster.settings import ROOT, Trouble
from tests.fakes.mps.install import install

CAPTURES = ROOT / "tests/captures"
DRIVER = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
PROGRAMS = "/run/nvidia/driver/usr/bin"
# Where daemonset/kind/cluster.yaml puts captures, and which.
KIND, KIND_CAPTURES = "/var/lib/lockstep/captures", ROOT / "central/standalone/captures"


def node(name: str, capture: str, folder: Path, labels: dict[str, str]) -> dict[str, Any]:
    """A node of cluster.up's configuration that has this machine's GPUs, NICs and NUMA nodes."""
    path = CAPTURES / f"{capture}.json"
    library, tree, programs = (folder / name / part for part in ("driver", "sys", "programs"))
    for target in (library, tree):
        target.mkdir(parents=True)
    install(programs, "/usr/local/bin/python3")  # of the agent's image
    _make("tests.fakes.nvml.build", str(library), str(path))
    _make("tests.fakes.sysfs", str(tree), str(path))
    return {
        "name": name,
        "labels": {"nvidia.com/gpu.present": "true", **labels},
        "sysfs": str(tree),
        "files": {DRIVER: str(library), PROGRAMS: str(programs), KIND: str(KIND_CAPTURES)},
        "cpu": 64,
        "memory": "512Gi",
        "kubelet": {"syncFrequency": "10s"},  # a ConfigMap reaches a running pod sooner
        "numa": len(list((tree / "devices/system/node").glob("node[0-9]*"))) or 1,
    }


def _make(module: str, *argv: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *argv], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise Trouble(f"python -m {module} {' '.join(argv)}: {done.stdout}{done.stderr}")
