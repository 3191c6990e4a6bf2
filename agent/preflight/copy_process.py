"""Runs gpu_copies as a process with a timeout, and reads what it found."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.bounded_files import number
from protos.blame import blamed
from protos.common import own_program

POLL_S = 0.05
MOST_OUTPUT = 1 << 20  # characters that are read
Pair = tuple[str, str]  # UUIDs
PROGRAM = own_program.command("agent.preflight.gpu_copies")


class CopyOutcome(NamedTuple):
    failed: dict[str, str]  # why, by UUID
    unable: str = ""  # why nothing could be copied
    cancelled: bool = False


class CopyProcess:
    """One at a time. A process that hangs in the kernel cannot be killed; while it is there, no other begins."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._program = tuple(program)
        self._left: subprocess.Popen[bytes] | None = None

    def run(
        self, uuids: Sequence[str], wait_s: float, cancelled: Callable[[], bool]
    ) -> CopyOutcome:
        """cancelled: polled meanwhile; the process is ended once it is true."""
        if self._left is not None and self._left.poll() is None:
            return CopyOutcome(dict.fromkeys(uuids, "an earlier check of copies still hangs"))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(uuids)}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*self._program, str(len(uuids))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            deadline = time.monotonic() + wait_s
            while process.poll() is None and time.monotonic() < deadline and not cancelled():
                time.sleep(POLL_S)
            ended = process.poll() is not None
            if not ended:
                self._kill(process)
            if cancelled():
                return CopyOutcome({}, cancelled=True)
            output.seek(0)
            text = output.read(MOST_OUTPUT).decode("utf-8", "replace")
        if not ended:
            return outcome(text, uuids, f"a copy did not end within {wait_s:g} s")
        if unable := _not_the_gpus(process.returncode, text):
            return CopyOutcome({}, unable=unable)
        return outcome(text, uuids, f"the check of copies ended with {process.returncode}")

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(1.0)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._left = process


def _not_the_gpus(code: int, text: str) -> str:
    """Returns why the process ended early if the GPUs are not the cause, else ""."""
    if code == -signal.SIGKILL:
        return "the process was killed, probably for the container's memory limit"
    return "" if text else f"the process ended with {code} before it began"


def outcome(text: str, uuids: Sequence[str], broken_off: str) -> CopyOutcome:
    """Parses the lines of the copy process. broken_off: the fault if the lines do not end with done; it is ascribed
    to the step that was tried last, or to every GPU if no step was."""
    pairs: dict[Pair, str] = {}
    last: Pair | None = None
    for line in text.splitlines():
        word, *rest = line.split(" ", 3)
        if word == "unable":
            return CopyOutcome({}, unable=line.partition(" ")[2])
        if word == "done":
            return CopyOutcome(blamed(pairs))
        if word in ("try", "failed") and (pair := _pair(rest, uuids)):
            if word == "try":
                last = pair
            else:
                pairs[pair] = rest[2] if len(rest) > 2 else "a copy failed"
    if last is None:
        everyone = dict.fromkeys(uuids, broken_off)
        return CopyOutcome({**everyone, **blamed(pairs)})
    pairs.setdefault(last, broken_off)
    return CopyOutcome(blamed(pairs))


def _pair(words: Sequence[str], uuids: Sequence[str]) -> Pair | None:
    numbers = [found for each in words[:2] if (found := number(each)) >= 0]
    if len(numbers) != 2 or max(numbers) >= len(uuids):
        return None
    return uuids[numbers[0]], uuids[numbers[1]]
