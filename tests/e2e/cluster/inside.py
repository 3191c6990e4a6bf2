"""A machine, from inside: its process 1. Gives the machine a name and file systems of its own
where that matters, keeps its programs running, and answers Machine.ask()."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.e2e.cluster.cgroup import Cgroup


def main(directory: Path) -> None:
    spec = json.loads((directory / "machine.json").read_text())
    os.chdir("/")
    Cgroup(spec["cgroup"]).join()
    furnish(directory, spec)
    Supervisor(directory, spec["components"]).run()


def mount(*argv: object) -> None:
    subprocess.run(["mount", *map(str, argv)], check=True)


def furnish(directory: Path, spec: dict[str, Any]) -> None:
    socket.sethostname(spec["hostname"])
    mount("-t", "proc", "proc", "/proc")
    _sys(directory, [Path(tree) for tree in spec["sysfs"]])
    _dev(directory)
    mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    mount("--bind", directory / "lib", "/var/lib")
    mount("--bind", directory / "log", "/var/log")
    for source, target in spec["binds"]:
        _place(Path(source), Path(target))
        mount("--bind", source, target)
    mount("--make-rshared", "/")  # kubelets and containers pass mounts on

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    network = Path("/proc/sys/net/ipv4")
    (network / "ip_forward").write_text("1")
    for setting in ("rp_filter", "send_redirects"):
        for scope in ("all", "default"):
            (network / "conf" / scope / setting).write_text("0")


def _sys(directory: Path, trees: list[Path]) -> None:
    """A sysfs for this machine's network, the cgroups below it as they were, and over it the
    hardware that this machine is to have: a read-only overlay, so the rest stays the kernel's."""
    (directory / "cgroup").mkdir(exist_ok=True)
    mount("--rbind", "/sys/fs/cgroup", directory / "cgroup")
    mount("-t", "sysfs", "sysfs", "/sys")
    if trees:
        layers = ":".join(map(str, [*trees, "/sys"]))
        mount("-t", "overlay", "-o", f"lowerdir={layers}", "sysfs", "/sys")
    mount("--rbind", directory / "cgroup", "/sys/fs/cgroup")


def _dev(directory: Path) -> None:
    """A /dev of its own, so that a test can add devices to one machine."""
    dev = directory / "dev"
    dev.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=755,size=1m", "dev", dev)
    for name in ("pts", "shm", "mqueue"):
        if Path("/dev", name).is_dir():
            (dev / name).mkdir()
            mount("--rbind", f"/dev/{name}", dev / name)
    for name in ("null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"):
        with contextlib.suppress(FileNotFoundError):
            status = Path("/dev", name).stat()
            os.mknod(dev / name, status.st_mode, status.st_rdev)
    for name, target in {
        "ptmx": "pts/ptmx",
        "fd": "/proc/self/fd",
        "stdin": "/proc/self/fd/0",
        "stdout": "/proc/self/fd/1",
        "stderr": "/proc/self/fd/2",
    }.items():
        (dev / name).symlink_to(target)
    mount("--rbind", dev, "/dev")


def _place(source: Path, target: Path) -> None:
    """Something to mount over, where this machine has nothing (as in its empty /run)."""
    if target.exists():
        return
    if stat.S_ISDIR(source.stat().st_mode):
        target.mkdir(parents=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


class Supervisor:
    def __init__(self, directory: Path, components: dict[str, list[str]]) -> None:
        self.directory = directory
        self.components = components  # name: argv
        self.wanted: set[str] = set()
        self.pids: dict[str, int] = {}
        self.lock = threading.RLock()

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        control = self.directory / "control"
        control.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(control))
        listener.listen(16)
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        while True:  # reap, as process 1 must, and restart what should be running
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(0.05)
                continue
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        with self.lock:
            for name in [name for name, number in self.pids.items() if number == pid]:
                del self.pids[name]
                print(f"{name} ended, status {os.waitstatus_to_exitcode(status)}", flush=True)
                if name in self.wanted:
                    threading.Timer(0.5, self._spawn, (name,)).start()

    def _spawn(self, name: str) -> None:
        with self.lock:
            if name not in self.wanted or name in self.pids:
                return
            argv = self.components[name]
            log = os.open(
                self.directory / "log" / f"{name}.log",
                os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                0o644,
            )
            default = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE]
            self.pids[name] = os.posix_spawnp(
                argv[0],
                argv,
                os.environ,
                setsid=True,
                setsigdef=default,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                ],
            )
            os.close(log)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        verbs = {
            "start": self.start,
            "stop": self.stop,
            "restart": self.restart,
            "status": self.status,
        }
        with connection, connection.makefile("rw") as stream:
            line = stream.readline()
            if not line:
                return  # only asked whether anyone is here
            verb, *names = json.loads(line)
            try:
                answer = verbs[verb](names or sorted(self.components))
            except (OSError, KeyError) as error:
                answer = {"error": repr(error)}
            stream.write(json.dumps(answer) + "\n")

    def start(self, names: list[str]) -> dict[str, Any]:
        with self.lock:
            for name in names:
                self.wanted.add(name)
                self._spawn(name)
        return {}

    def stop(self, names: list[str]) -> dict[str, Any]:
        with self.lock:
            self.wanted.difference_update(names)
            self._signal(names, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while any(name in self.pids for name in names):
            if time.monotonic() > deadline:
                self._signal(names, signal.SIGKILL)
                deadline += 5
            time.sleep(0.02)
        return {}

    def _signal(self, names: list[str], number: signal.Signals) -> None:
        with self.lock:
            for name in names:
                if name in self.pids:
                    os.kill(self.pids[name], number)

    def restart(self, names: list[str]) -> dict[str, Any]:
        self.stop(names)
        return self.start(names)

    def status(self, _: list[str]) -> dict[str, Any]:
        return {"pids": dict(self.pids), "wanted": sorted(self.wanted)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
