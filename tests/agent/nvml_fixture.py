"""A machine for the agent's real commands: the fake NVML library, a /sys, and a process."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.machine.facts import Machine
from tests.fakes import sysfs
from tests.fakes.nvml import build

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests" / "captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.json"))


def library(folder: Path, hide: tuple[str, ...] = ()) -> Path:
    """The folder of a fresh fake library."""
    if not shutil.which("gcc") and not shutil.which("cc"):
        pytest.skip("the fake NVML library needs a C compiler")
    build.build(folder, hide)
    return folder


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine in a folder; run() starts lockstep-agent on it."""

    library: Path | None
    folder: Path

    @property
    def sysfs(self) -> Path:
        return self.folder / "sys"

    def install(self, machine: Machine) -> None:
        self.install_profile(build.profile(machine))
        sysfs.render(machine, self.sysfs)

    def install_profile(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / build.PROFILE).write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(["-m", "agent", *arguments], self.folder / build.PROFILE)

    def run_as_installed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The library finds its profile beside itself."""
        return self._run(["-m", "agent", *arguments], None)

    def python(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(["-c", program, *arguments], self.folder / build.PROFILE)

    def python_as_installed(
        self, program: str, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        return self._run(["-c", program, *arguments], None)

    def _run(self, arguments: list[str], profile: Path | None) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "LOCKSTEP_FAKE_NVML": str(profile or ""),
            "LD_LIBRARY_PATH": str(self.library or ""),
        }
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180
        )

    def seen(self, *arguments: str) -> str:
        """What a command that succeeds prints about this machine."""
        done = self.run(*arguments, "--sysfs-root", str(self.sysfs))
        assert done.returncode == 0, done.stderr
        return done.stdout
