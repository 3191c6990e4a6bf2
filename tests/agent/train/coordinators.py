"""A real coordinator as a process, and the environment of members that speak with it."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from central.server import tls
from tests.architecture.sources import ROOT

READY_WITHIN_S = 120.0
TOKEN = "a-token-of-tests-0123456789"


class RunningCoordinator:
    """`lockstep coordinate` on a free port, with short waits. It may be killed and started again."""

    def __init__(self, folder: Path, flags: tuple[str, ...], *, secure: bool) -> None:
        self.folder = folder  # token, output, the package under its own name
        self.secure = secure
        port = free_port()
        self.url = f"https://localhost:{port}" if secure else f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "central", "coordinate", "--job=default/train/uid"]
        self._command += [f"--listen=127.0.0.1:{port}", f"--token-file={folder / 'token'}"]
        self._command += ["--gather=1", "--join-wait=5", f"--leader-port={free_ports(200)}"]
        self._command += [
            "--answer=8"
        ]  # machines of tests are loaded, and a process is slow to answer there
        self._command += flags
        (folder / "token").write_text(TOKEN)
        if secure:
            issued = tls.issue("default", datetime.now(UTC))
            (folder / "tls.crt").write_bytes(issued.certificate)
            (folder / "tls.key").write_bytes(issued.key)
            (folder / "ca.crt").write_bytes(issued.ca)
            self._command.append(f"--tls-dir={folder}")
        if not (folder / "lockstep_train").exists():
            (folder / "lockstep_train").symlink_to(ROOT / "agent/train")
        self.start()

    def start(self) -> None:
        with (self.folder / "coordinator.log").open("a") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)
        self._wait_ready()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(120)

    def environment(self, member: int, **more: str) -> dict[str, str]:
        """Of a member's processes, as the plugin `elastic` sets it."""
        return {
            **{name: value for name, value in os.environ.items() if "LOCKSTEP" not in name},
            "PYTHONPATH": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "LOCKSTEP_COORDINATOR": self.url,
            "LOCKSTEP_TOKEN_FILE": str(self.folder / "token"),
            "LOCKSTEP_CA_FILE": str(self.folder / "ca.crt") if self.secure else "",
            "LOCKSTEP_MEMBER": str(member),
            "LOCKSTEP_POD": f"train-worker-{member}",
            "LOCKSTEP_POD_UID": f"uid-{member}",
            "LOCKSTEP_ADDRESS": "127.0.0.1",
            "LOCKSTEP_CHECKPOINTS": str(self.folder / "checkpoints"),
            **more,
        }

    def get(self, path: str) -> Any:
        """What a question is answered with."""
        with self._opened(path) as answer:
            return json.loads(answer.read())

    def log(self) -> str:
        return (self.folder / "coordinator.log").read_text()

    def _opened(self, path: str) -> Any:
        context = None
        if self.secure:
            context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        request = Request(self.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
        return urlopen(request, timeout=5, context=context)

    def _wait_ready(self) -> None:
        end = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log()
            try:
                with self._opened("/readyz"):
                    return
            except HTTPError as error:
                error.close()
                time.sleep(0.05)
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"not ready: {self.log()}")


@contextmanager
def coordinator(folder: Path, *flags: str, secure: bool = False) -> Iterator[RunningCoordinator]:
    running = RunningCoordinator(folder, flags, secure=secure)
    try:
        yield running
    finally:
        running.stop()


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def free_ports(count: int) -> int:
    """The first of a range below those that the kernel gives away."""
    return 12_000 + os.getpid() * 211 % (20_000 - count)
