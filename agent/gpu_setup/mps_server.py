"""MPS on one GPU: a control daemon of its own, which starts the server when the first client comes. One
daemon per GPU, so that what befalls one is not the others' matter."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.gpu_setup.nvidia_tools import Tool, ToolError, ToolTimeout

START_S = 10.0
STOP_S = 10.0
LOOK_S = 0.05
MISSED = 3  # answers, after which a daemon hangs
DEVICE = "0"  # the daemon sees one GPU; old drivers take no uuid here


class MpsServer:
    """ended is called, from a thread, when a daemon that was started here has ended."""

    def __init__(
        self, tool: Tool, uuid: str, pipe: Path, logs: Path, ended: Callable[[], None]
    ) -> None:
        self._tool, self._uuid = tool, uuid
        self._pipe, self._logs, self._ended = pipe, logs, ended
        self._child: subprocess.Popen[bytes] | None = None
        self._missed = 0  # answers, one after the other
        self._limits: tuple[int, tuple[str, ...]] = (0, ())  # as set: MiB, and on which servers

    def serves(self) -> bool:
        """Whether a daemon is there, ours or one that an earlier keeper has left. Raises ToolTimeout: one is
        there and does not answer, which on a busy machine is no reason to end what clients compute."""
        if self._child is not None and self._child.poll() is not None:
            return False
        try:
            self._say("get_default_active_thread_percentage")
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
                start_new_session=True,  # it may outlive us
            )
        except OSError as error:
            raise ToolError(f"{self._tool.path} can't be run: {error.strerror}") from None
        self._child = child
        threading.Thread(target=self._wait, args=(child,), name="mps", daemon=True).start()
        deadline = time.monotonic() + START_S
        while not self.serves():
            if child.poll() is not None:
                raise ToolError(f"{self._tool.path.name} ended at once ({self._last_words()})")
            if time.monotonic() > deadline:
                raise ToolError(f"{self._tool.path.name} does not answer after {START_S:g} s")
            time.sleep(LOOK_S)

    def _wait(self, child: "subprocess.Popen[bytes]") -> None:
        child.wait()
        if self._child is child:
            self._ended()

    def limit(self, mib: int) -> None:
        """What each client may have of the GPU's memory that does not say less: of the servers to come, and
        of those there are, for clients to come. Raises ToolError."""
        servers = tuple(self._say("get_server_list").split())
        if self._limits == (mib, servers):
            return
        self._say(f"set_default_device_pinned_mem_limit {DEVICE} {mib}M")
        for server in servers:
            self._say(f"set_device_pinned_mem_limit {server} {DEVICE} {mib}M")
        self._limits = mib, servers

    def stop(self) -> None:
        """Nobody uses it any more."""
        with contextlib.suppress(ToolError):
            self._say("quit")
        self.kill(STOP_S)

    def kill(self, after_s: float = 0.0) -> None:
        """The child; what is not ours has been told to quit."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            child.wait(after_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _say(self, command: str) -> str:
        return self._tool.run(say=f"{command}\n", **self._where())

    def _where(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
        }

    def _last_words(self) -> str:
        try:
            lines = (self._logs / "control.log").read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            lines = []
        told = [line for line in lines if line.strip()]
        return told[-1].strip()[:200] if told else "without a word in its log"
