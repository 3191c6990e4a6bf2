"""Under a real kernel, in an emulator: RDMA-cgroup limits with soft-RoCE HCAs, and a PCI tree with
switches and two NUMA nodes, read by the agent's code."""

import json
import subprocess
import sys

import pytest

from tests.e2e.cluster.settings import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RUN = ROOT / "tests/e2e/rdma/run-in-vm"


@pytest.mark.parametrize(
    ("version", "arguments"),
    [(2, ()), pytest.param(1, ("--cgroup", "v1"), marks=pytest.mark.nightly)],
)
def test_a_program_is_stopped_at_its_pods_limit(version: int, arguments: tuple[str, ...]) -> None:
    command = [
        str(RUN),
        "--timeout",
        "560",
        *arguments,
        "--",
        "env",
        f"PYTHONPATH={ROOT}",
        sys.executable,
    ]
    done = subprocess.run(
        [*command, "-m", "tests.e2e.rdma.inside", str(version)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["version"] == version
    assert said["max"][0].startswith("rxe0 hca_handle=2 hca_object=5 \n")
    assert said["max"][1].startswith("rxe0 hca_handle=64 hca_object=1000 \n")
    assert said["within"] == [2, 5, ""]
    assert said["too many handles"] == [2, 0, "EAGAIN"]
    assert said["too many objects"] == [1, 5, "EAGAIN"]
    assert said["other pod"] == said["other card"] == [4, 9, ""]
    assert said["use"] == [["p1", 1, 3], ["p2", 0, 0]]
    assert said["away"] == []
    assert said["back"]
    assert said["kept"]
    assert said["still too many"] == [2, 0, "EAGAIN"]
    assert "limits all pods to 1" in said["refused"]
    assert said["exclusive"] == [False, True, "1"]  # EPERM


CARDS = ",".join(
    f"rxe{number}=0000:{bus}:00.0" for number, bus in enumerate(("25", "2a", "65", "a5"))
)
TREE = """
X PIX PHB PHB SYS SYS SYS SYS PIX PHB SYS SYS
PIX X PHB PHB SYS SYS SYS SYS PIX PHB SYS SYS
PHB PHB X PIX SYS SYS SYS SYS PHB PIX SYS SYS
PHB PHB PIX X SYS SYS SYS SYS PHB PIX SYS SYS
SYS SYS SYS SYS X PIX NODE NODE SYS SYS PIX NODE
SYS SYS SYS SYS PIX X NODE NODE SYS SYS PIX NODE
SYS SYS SYS SYS NODE NODE X PIX SYS SYS NODE PIX
SYS SYS SYS SYS NODE NODE PIX X SYS SYS NODE PIX
PIX PIX PHB PHB SYS SYS SYS SYS X PHB SYS SYS
PHB PHB PIX PIX SYS SYS SYS SYS PHB X SYS SYS
SYS SYS SYS SYS PIX PIX NODE NODE SYS SYS X NODE
SYS SYS SYS SYS NODE NODE PIX PIX SYS SYS NODE X
"""


def test_a_tree_with_switches_and_two_numa_nodes() -> None:
    """The kernel's own /sys; only vendors, classes and the cards' links are put over it (dress.sh)."""
    folder = RUN.parent
    inside = f". {folder}/dress.sh; PYTHONPATH={ROOT} {sys.executable} -m tests.e2e.rdma.tree"
    machine = ("--smp", "4", "--qemu", str(folder / "tree.qemu"), "--hca", CARDS)
    done = subprocess.run(
        [str(RUN), *machine, "--", "bash", "-c", inside],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert [numa for _, numa in said["gpus"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [numa for _, _, numa in said["cards"]] == [0, 0, 1, 1]
    assert said["distance"] == [[10, 21], [21, 10]]
    assert said["links"] == TREE.strip().splitlines()
    assert said["rails"] == ["rxe0", "rxe1", "rxe2", "rxe3"]
    assert said["nearest"] == [f"rxe{gpu // 2}" for gpu in range(8)]
