"""A real coordinator as a process, and the environment of members that speak with it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.architecture.sources import ROOT

READY_WITHIN_S = 40.0


@dataclass(frozen=True)
class RunningCoordinator:
    url: str
    folder: Path  # token, output, the package under its own name

    def environment(self, member: int, **more: str) -> dict[str, str]:
        """Of a member's processes, as the plugin `elastic` sets it."""
        return {
            **{name: value for name, value in os.environ.items() if "LOCKSTEP" not in name},
            "PYTHONPATH": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "LOCKSTEP_COORDINATOR": self.url,
            "LOCKSTEP_TOKEN_FILE": str(self.folder / "token"),
            "LOCKSTEP_MEMBER": str(member),
            "LOCKSTEP_POD": f"train-worker-{member}",
            "LOCKSTEP_POD_UID": f"uid-{member}",
            "LOCKSTEP_ADDRESS": "127.0.0.1",
            "LOCKSTEP_CHECKPOINTS": str(self.folder / "checkpoints"),
            **more,
        }


@contextmanager
def coordinator(folder: Path, *flags: str) -> Iterator[RunningCoordinator]:
    """`lockstep coordinate` on a free port, with short waits."""
    (folder / "token").write_text("a-token-of-tests-0123456789")
    if not (folder / "lockstep_train").exists():
        (folder / "lockstep_train").symlink_to(ROOT / "agent/train")
    port = free_port()
    command = [sys.executable, "-m", "central", "coordinate", "--job=default/train/uid"]
    command += [f"--listen=127.0.0.1:{port}", f"--token-file={folder / 'token'}"]
    command += ["--gather=1", "--join-wait=5", f"--leader-port={free_ports(200)}", *flags]
    with (folder / "coordinator.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            _wait_ready(f"http://127.0.0.1:{port}/readyz", process, folder / "coordinator.log")
            yield RunningCoordinator(f"http://127.0.0.1:{port}", folder)
        finally:
            process.terminate()
            process.wait(20)


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def free_ports(count: int) -> int:
    """The first of a range below those that the kernel gives away."""
    return 12_000 + os.getpid() * 211 % (20_000 - count)


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"not ready: {log.read_text()}")
