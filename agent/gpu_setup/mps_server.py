"""MPS on one GPU. The control daemon starts the MPS server with the first client. Each GPU has a
daemon of its own, so that a failure stays on that GPU."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.bounded_files import end_or_empty
from agent.gpu_setup.nvidia_tools import Tool, ToolError, ToolTimeout
from protos.common.child_process import wait_or_kill

START_S = 10.0
STOP_S = 10.0
POLL_S = 0.05
MISSED = 3  # unanswered commands in a row after which a daemon counts as hanging
DEVICE = "0"  # the daemon sees one GPU; old drivers do not accept a UUID here


class MpsServer:
    """Calls ended() from a thread when a daemon that start() started has ended."""

    def __init__(
        self, tool: Tool, uuid: str, pipe: Path, logs: Path, ended: Callable[[], None]
    ) -> None:
        self._tool, self._uuid = tool, uuid
        self._pipe, self._logs, self._ended = pipe, logs, ended
        self._child: subprocess.Popen[bytes] | None = None
        self._missed = 0  # unanswered commands in a row
        self._limits: tuple[int, tuple[str, ...]] = (
            0,
            (),
        )  # as set: MiB, process ids of the servers

    def serves(self) -> bool:
        """Returns whether a daemon runs, started by this process or by an earlier one. Raises ToolTimeout if it does
        not answer: on a busy machine that is no reason to end its clients."""
        if self._child is not None and self._child.poll() is not None:
            return False
        try:
            self._command("get_default_active_thread_percentage")
        except ToolTimeout:
            self._missed += 1
            if self._missed < MISSED:
                raise
            return False
        except ToolError:
            return False
        self._missed = 0
        return True

    def start(self, *, multi_user: bool) -> None:
        """Raises ToolError."""
        for folder in (self._pipe, self._logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.kill()
        self._limits, self._missed = (0, ()), 0
        arguments = [str(self._tool.path), "-f", *(["-M"] if multi_user else [])]
        try:
            child = subprocess.Popen(
                arguments,
                env=self._tool.environment(CUDA_VISIBLE_DEVICES=self._uuid, **self._where()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # may outlive this process
            )
        except OSError as error:
            raise ToolError(f"cannot run {self._tool.path}: {error.strerror}") from None
        self._child = child
        threading.Thread(target=self._wait, args=(child,), name="mps", daemon=True).start()
        deadline = time.monotonic() + START_S
        while not self.serves():
            if child.poll() is not None:
                raise ToolError(f"{self._tool.path.name} exited at once ({self._last_words()})")
            if time.monotonic() > deadline:
                raise ToolError(f"{self._tool.path.name} has not answered for {START_S:g} s")
            time.sleep(POLL_S)

    def _wait(self, child: "subprocess.Popen[bytes]") -> None:
        child.wait()
        if self._child is child:
            self._ended()

    def limit(self, mib: int) -> None:
        """Sets the default memory limit of new clients, on running and on future servers. Clients
        may set a lower one. Raises ToolError."""
        servers = tuple(self._command("get_server_list").split())
        if self._limits == (mib, servers):
            return
        self._command(f"set_default_device_pinned_mem_limit {DEVICE} {mib}M")
        for server in servers:
            self._command(f"set_device_pinned_mem_limit {server} {DEVICE} {mib}M")
        self._limits = mib, servers

    def stop(self) -> None:
        """Call when the GPU has no clients any more."""
        with contextlib.suppress(ToolError):
            self._command("quit")
        self.kill(STOP_S)

    def kill(self, after_s: float = 0.0) -> None:
        """Ends the daemon if it is a child of this process; quit ends the others."""
        child, self._child = self._child, None
        if child is None:
            return
        wait_or_kill(child, after_s)

    def _command(self, command: str) -> str:
        return self._tool.run(stdin=f"{command}\n", **self._where())

    def _where(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
        }

    def _last_words(self) -> str:
        lines = end_or_empty(self._logs / "control.log").split("\n")
        written = [line for line in lines if line.strip()]
        return written[-1].strip()[:200] if written else "its log is empty"
