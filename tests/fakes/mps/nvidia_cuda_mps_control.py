#!/usr/bin/env python3
"""nvidia-cuda-mps-control for machines without GPUs: the daemon (-d, -f) and its user interface,
which reads commands from stdin, with the files and answers of the real one. Servers are processes
that sleep.

A file "refuse" beside the folder of the pipes makes it end at once, with its content in the log."""

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
PID_FILE = PIPES / "nvidia-cuda-mps-control.pid"
GONE_S = 5.0
LIMIT = re.compile(r"\d+[GM]")


class Daemon:
    def __init__(self, multi_user: bool) -> None:
        self.multi_user = multi_user
        self.devices = len(os.environ.get("CUDA_VISIBLE_DEVICES", "all").split(","))
        self.percentage = "100.0"
        self.limits: dict[str, str] = {}
        self.servers: dict[int, dict[str, str]] = {}
        self.uids: dict[int, str] = {}

    def answer(self, line: str) -> str:
        """The output of the real program; errors begin with !."""
        words = line.split()
        handler = getattr(self, f"_{words[0]}", None) if words else None
        if handler is None:
            return f"!Unrecognized command: {line}"
        try:
            return str(handler(*words[1:]))
        except (TypeError, ValueError, KeyError) as error:
            return f"!Invalid arguments of {words[0]}: {error}"

    def _get_server_list(self) -> str:
        for pid in list(self.servers):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self.servers[pid]
            except ChildProcessError:
                del self.servers[pid]
        return "\n".join(map(str, self.servers))

    def _start_server(self, flag: str, uid: str) -> str:
        """Starts the server as the first client of a user does."""
        if flag != "-uid" or not uid.isdigit():
            raise ValueError(flag)
        if self.servers and not self.multi_user and uid not in self.uids.values():
            return "queued: another user's server runs"
        daemon, pid = os.getpid(), os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while os.getppid() == daemon:
                time.sleep(1)
            os._exit(0)
        self.servers[pid], self.uids[pid] = dict(self.limits), uid
        return ""

    def _get_default_active_thread_percentage(self) -> str:
        return self.percentage

    def _set_default_active_thread_percentage(self, percentage: str) -> str:
        self.percentage = str(float(percentage))
        return self.percentage

    def _device(self, device: str) -> str:
        if not device.isdigit() or int(device) >= self.devices:  # drivers before 560 take no uuid
            raise ValueError(f"no device {device}")
        return device

    def _set_default_device_pinned_mem_limit(self, device: str, value: str) -> str:
        if not LIMIT.fullmatch(value):
            raise ValueError(value)
        self.limits[self._device(device)] = value
        return ""

    def _get_default_device_pinned_mem_limit(self, device: str) -> str:
        return self.limits.get(self._device(device), "")

    def _set_device_pinned_mem_limit(self, pid: str, device: str, value: str) -> str:
        if not LIMIT.fullmatch(value):
            raise ValueError(value)
        self.servers[int(pid)][self._device(device)] = value
        return ""

    def _get_device_pinned_mem_limit(self, pid: str, device: str) -> str:
        return self.servers[int(pid)].get(self._device(device), "")

    def _quit(self, *_: str) -> str:
        for pid in self.servers:
            os.kill(pid, signal.SIGTERM)
        PID_FILE.unlink(missing_ok=True)
        return "bye"


def note(text: str) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "control.log").open("a") as log:
        log.write(f"[{time.strftime('%F %T')} Control {os.getpid():5}] {text}\n")


def serve(options: list[str]) -> int:
    if set(options) - {"-d", "-f", "-M"}:
        print("usage: nvidia-cuda-mps-control [-d | -f] [-M]")
        return 1
    refusal = PIPES.parent / "refuse"
    if refusal.exists():
        note(refusal.read_text().strip())
        return 1
    PIPES.mkdir(parents=True, exist_ok=True)
    if connected():
        print("An instance of this daemon is already running")
        return 1
    if "-d" in options and os.fork():
        return 0
    (PIPES / "control").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(PIPES / "control"))
    listener.listen()
    PID_FILE.write_text(f"{os.getpid()}\n")
    note(f"Starting control daemon using socket {PIPES}/control")
    daemon = Daemon("-M" in options)
    listener.settimeout(GONE_S)
    while True:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            if PIPES.exists():
                continue
            return 1  # left over from a killed test
        try:
            if talked(daemon, client):
                return 0
        except OSError as error:  # the client closed the connection
            note(f"UI closed: {error}")


def talked(daemon: Daemon, client: socket.socket) -> bool:
    """Serves one user interface; whether it sent quit."""
    with client, client.makefile("rw") as stream:
        for line in stream:
            note(f"Cmd:{line.strip()}")
            answer = daemon.answer(line.strip())
            stream.write(f"{answer}\0")
            stream.flush()
            if answer == "bye":
                return True
    return False


def connected() -> socket.socket | None:
    ui = socket.socket(socket.AF_UNIX)
    try:
        ui.connect(str(PIPES / "control"))
    except OSError:
        return None
    return ui


def talk() -> int:
    ui = connected()
    if ui is None:
        print("Cannot find MPS control daemon process")
        return 1
    failed = 0
    with ui, ui.makefile("rw") as stream:
        for line in sys.stdin:
            stream.write(line if line.endswith("\n") else f"{line}\n")
            stream.flush()
            answer = ""
            while not answer.endswith("\0"):
                if not (got := stream.read(1)):
                    return 1
                answer += got
            text = answer.rstrip("\0")
            failed |= text.startswith("!")
            if text.lstrip("!") and text != "bye":
                print(text.lstrip("!"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]) if len(sys.argv) > 1 else talk())
