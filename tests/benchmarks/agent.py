"""What an idle agent costs: the program as it is shipped, eight GPUs, a kubelet beside it and nothing
to do; on a capture, on the fake NVML library with events and metrics, and with a centre that it
reports to."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agent.machine import capture
from protos.names import GPU
from tests.fakes import sysfs
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nvml import build

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "tests/captures/hgx-h100-8.json"
SETTLE_S = 40.0  # pods are listed less often when nothing has happened for half a minute
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Idle:
    cpu_percent: float  # of one core
    resident_mib: float


def measure(seconds: float, *, nvml: bool, centre: bool = False) -> Idle:
    with ExitStack() as stack:
        # A unix socket's path must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ls-")))
        kubelet = stack.enter_context(HollowKubelet(folder))
        arguments = ["--metrics-listen=127.0.0.1:19400", "--kubelet-dir", str(folder)]
        environment = dict(os.environ)
        if centre:
            fleet = FakeScheduler(folder, hold_s=60.0)
            fleet.start()
            stack.callback(fleet.stop)
            arguments += ["--server", fleet.address, "--ca-file", str(fleet.ca_file)]
            arguments += ["--token-file", str(fleet.token_file)]
        if nvml:
            machine = capture.load(CAPTURE)
            build.build(folder / "lib")
            (folder / build.PROFILE).write_text(build.profile(machine))
            sysfs.render(machine, folder / "sys")
            arguments += ["--sysfs-root", str(folder / "sys")]
            environment |= {
                "LOCKSTEP_FAKE_NVML": str(folder / build.PROFILE),
                "LD_LIBRARY_PATH": str(folder / "lib"),
            }
        else:
            arguments += ["--capture", str(CAPTURE)]
        command = [sys.executable, "-m", "agent", "run", "--node=bench", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: kubelet.allocatable.get(GPU) == 8, 30)
            time.sleep(SETTLE_S)
            before, began = _cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            used = (_cpu_s(process.pid) - before) / (time.monotonic() - began)
            return Idle(100 * used, _resident_mib(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def rows(seconds: float, say: Callable[[str], None]) -> list[tuple[str, float, str, str]]:
    found: list[tuple[str, float, str, str]] = []
    for nvml, centre, words in (
        (False, False, "a capture"),
        (True, False, "the fake NVML library"),
        (True, True, "it, with a centre"),
    ):
        say(f"an idle agent on {words}, {seconds:.0f} s after {SETTLE_S:.0f} s")
        idle = measure(seconds, nvml=nvml, centre=centre)
        found += [
            (f"(d) idle agent on {words}, processor", idle.cpu_percent, "% of a core", "<= 0.5 %"),
            (f"(d) idle agent on {words}, memory", idle.resident_mib, "MiB", "<= 60 MiB"),
        ]
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


def main() -> int:
    for what, value, unit, aim in rows(30.0, lambda words: print(words, file=sys.stderr)):
        print(f"{what:55} {value:8.2f} {unit:12} {aim}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
