"""A driver that fails in every call and lies about every value of one GPU, through NVIDIA's binding on the fake
library: the agent's readers raise nothing but NvmlError, the other GPUs are as they were, and the scheduler accepts the
report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.machine import capture
from tests.agent.nvml_fixture import CAPTURES, ROOT, Hardware
from tests.effort import ALL_SEEDS
from tests.fakes.nvml import build

LATE_S = 300


def calls(library: Path) -> list[str]:
    """The functions that the library has."""
    source = "".join(file.read_text() for file in build.SOURCE.parent.glob("*.[ch]"))
    found = sorted(set(re.findall(r"^int (nvml\w+)\(", source, re.MULTILINE)))
    assert (library / build.LIBRARY).exists()
    return found


@pytest.mark.parametrize(
    "name", ["hgx-h100-8", pytest.param("dgx-a100-mig-8", marks=pytest.mark.slow)]
)
def test_every_call_and_every_value(name: str, nvml_folder: Path, tmp_path: Path) -> None:
    hardware = Hardware(nvml_folder, tmp_path / "machine")
    hardware.install(capture.load(CAPTURES / f"{name}.json"))
    profile, control = hardware.folder / build.PROFILE, hardware.folder / build.CONTROL
    known = calls(nvml_folder)
    assert len(known) > 40
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.hostile.nvml_walk", profile, control, *known],
        cwd=ROOT,
        env={**os.environ, "LOCKSTEP_FAKE_NVML": str(profile), "LD_LIBRARY_PATH": str(nvml_folder)},
        capture_output=True,
        text=True,
        timeout=LATE_S,
    )
    assert done.returncode == 0, done.stderr
    *wrong, last = done.stdout.splitlines()
    assert not wrong, "\n".join(wrong[:20])
    tried, unread = map(int, re.findall(r"\d+", last))
    assert tried > (500 if ALL_SEEDS else 150)
    assert unread < tried / 4, "a failing call hides the whole machine"
