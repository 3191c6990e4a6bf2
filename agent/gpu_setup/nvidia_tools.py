"""Finds and runs nvidia-smi and nvidia-cuda-mps-control. NVIDIA's container runtime adds them to a
container (NVIDIA_DRIVER_CAPABILITIES=compute,utility); otherwise they are searched for below the
driver root."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent.nvml.library import FOLDERS

CONTROL, SMI = "nvidia-cuda-mps-control", "nvidia-smi"
BINARIES = (
    "usr/bin",
    "run/nvidia/driver/usr/bin",
    "home/kubernetes/bin/nvidia/bin",
    "usr/local/nvidia/bin",
)
ANSWER_S = 5.0


class ToolError(Exception):
    """The program failed; the message is a sentence."""


class ToolTimeout(ToolError):
    """The program did not answer in time."""


@dataclass(frozen=True, slots=True)
class Tool:
    path: Path
    env: tuple[tuple[str, str], ...] = ()  # in addition to this process's
    answer_s: float = ANSWER_S

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, **dict(self.env), **more}

    def run(self, *arguments: str, stdin: str = "", **env: str) -> str:
        """Returns its output. Raises ToolError."""
        try:
            done = subprocess.run(
                [self.path, *arguments],
                check=False,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=self.answer_s,
                env=self.environment(**env),
            )
        except subprocess.TimeoutExpired:
            raise ToolTimeout(
                f"{self.path.name} has not answered for {self.answer_s:g} s"
            ) from None
        except OSError as error:
            raise ToolError(f"cannot run {self.path}: {error.strerror}") from None
        if done.returncode:
            why = " ".join((done.stderr.strip() or done.stdout.strip()).split())
            what = stdin.strip() or " ".join(arguments)
            raise ToolError(f"{self.path.name} refused `{what}`: {why[:200] or 'no message'}")
        return done.stdout


def find(name: str, driver_root: Path | None) -> Tool:
    """Raises ToolError."""
    if found := shutil.which(name):
        return Tool(Path(found))
    for place in BINARIES if driver_root else ():
        assert driver_root is not None
        path = driver_root / place / name
        if os.access(path, os.X_OK):
            libraries = [driver_root / each for each in FOLDERS if (driver_root / each).is_dir()]
            env = (
                ("PATH", f"{path.parent}:{os.environ.get('PATH', '')}"),
                ("LD_LIBRARY_PATH", ":".join(map(str, libraries))),
            )
            return Tool(path, env)
    where = f" or below {driver_root}" if driver_root else ""
    raise ToolError(
        f"{name} is not on the path{where}: run this with NVIDIA's runtime and "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility, or name the driver's root"
    )
