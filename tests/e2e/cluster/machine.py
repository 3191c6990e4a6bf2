"""A machine, from outside: a set of Linux namespaces with a process 1 that starts, restarts and
stops programs, and a cgroup. To end it is to kill its process 1: the kernel then ends every
process in it and drops its mounts and its network."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster.cgroup import Cgroup
from tests.e2e.cluster.settings import NAME, PATH, ROOT, STATE, Trouble, run

Binds = list[tuple[Path, str]]


class Machine:
    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = STATE / name
        self.log = self.directory / "log"

    def define(
        self,
        *,
        hostname: str,
        components: Mapping[str, Sequence[str]],
        binds: Iterable[tuple[Path, str]] = (),
        sysfs: Iterable[Path] = (),
    ) -> None:
        """binds: files and folders to show elsewhere, made where they are missing.
        sysfs: trees to lay over /sys, the first on top."""
        for sub in ("log", "lib"):
            (self.directory / sub).mkdir(parents=True, exist_ok=True)
        spec = {
            "hostname": hostname,
            "cgroup": f"{NAME}/{self.name}/machine",
            "binds": list(binds),
            "sysfs": list(sysfs),
            "components": components,
        }
        (self.directory / "machine.json").write_text(json.dumps(spec, indent=1, default=str))

    def boot(self) -> None:
        Cgroup(f"{NAME}/{self.name}/machine").create()
        # No proxy of the host's, and no metadata service for the kubelet to wait 4 s for.
        environment = {"PATH": PATH, "HOME": "/root", "AWS_EC2_METADATA_DISABLED": "true"}
        namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
        with (self.log / "machine.log").open("ab") as log:
            subprocess.run(
                [
                    *(
                        "setsid",
                        "--fork",
                        "unshare",
                        *namespaces,
                        "--fork",
                        "--propagation",
                        "private",
                    ),
                    *(sys.executable, "-S", "-E", "-m", "tests.e2e.cluster.inside"),
                    str(self.directory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                cwd=ROOT,
                env=environment,
            )
        deadline = time.monotonic() + 30
        while not self.pid():
            if time.monotonic() > deadline:
                problem = (self.log / "machine.log").read_text()
                raise Trouble(f"{self.name} did not boot:\n{problem}")
            time.sleep(0.02)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.directory / "control"))
        except OSError:
            connection.close()
            raise
        return connection

    def pid(self) -> int | None:
        """The host's number of the machine's process 1."""
        try:
            with self._connect() as connection:
                peer = connection.getsockopt(
                    socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
                )
                return int(struct.unpack("3i", peer)[0])
        except OSError:
            return None

    def ask(self, verb: str, *components: str) -> dict[str, Any]:
        with self._connect() as connection, connection.makefile("rw") as stream:
            stream.write(json.dumps([verb, *components]) + "\n")
            stream.flush()
            answer: dict[str, Any] = json.loads(stream.readline())
        if "error" in answer:
            raise Trouble(f"{self.name}: {answer['error']}")
        return answer

    def start(self, *components: str) -> None:
        self.ask("start", *components)

    def enter(self, *namespaces: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid()), *namespaces, "--"]

    def command(self, *argv: object) -> list[str]:
        return [*self.enter("-m", "-u", "-i", "-n", "-p"), *map(str, argv)]

    def ip(self, *commands: str) -> None:
        run(*self.enter("-n"), "ip", "-batch", "-", stdin="\n".join(commands) + "\n")

    def kill(self) -> None:
        if pid := self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            while Path(f"/proc/{pid}").exists() and self.pid():
                time.sleep(0.02)
        Cgroup(f"{NAME}/{self.name}").remove()
