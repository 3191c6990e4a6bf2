"""RDMA-cgroup limits under a real kernel: the agent's code and soft-RoCE HCAs in an emulator."""

import json
import subprocess
import sys

import pytest

from tests.e2e.cluster.settings import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RUN = ROOT / "tests/e2e/rdma/run-in-vm"


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        (2, ()),
        (1, ("--cgroup", "v1")),
    ],
)
def test_a_program_is_stopped_at_its_pods_limit(version: int, arguments: tuple[str, ...]) -> None:
    command = [str(RUN), *arguments, "--", "env", f"PYTHONPATH={ROOT}", sys.executable]
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
    assert "2 hca_handle wished, all pods may have 1" in said["refused"]
