"""Runs the agent on a full disk and prints what happened as JSON. test_faults.py runs it in a mount
namespace with a tmpfs of 64 KiB."""

import json
import logging
import subprocess
import sys
from pathlib import Path

from agent.resources.cdi import Specs
from agent.service import Agent
from agent.settings import Settings
from protos.names import GPU
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nodebox import gpus, pod

KIND = "lockstep.dev/gpu"


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def has(self, words: str) -> bool:
        return any(words in line for line in self.lines)


def fill(disk: Path) -> list[Path]:
    """Fills the disk until neither a byte nor a file name fits."""
    made = []
    for number in range(1000):
        file = disk / f"filler-{number}"
        try:
            file.write_bytes(bytes(4096))
        except OSError:
            if not file.exists():
                break
        made.append(file)
    return made


def main(folder: Path) -> None:
    disk = folder / "disk"
    disk.mkdir()
    size = "size=64k,nr_inodes=40"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
    said = Said()
    logging.getLogger().addHandler(said)
    logging.getLogger().setLevel("INFO")
    found: dict[str, object] = {}

    specs = Specs(disk / "cdi")
    old = {f"gpu-{number}": (f"/dev/nvidia{number}",) for number in range(8)}
    assert specs.put(KIND, old, "X")
    before = specs.file(KIND).read_text()
    with HollowKubelet(disk) as kubelet:
        fillers = fill(disk)
        new = {f"gpu-{number}": (f"/dev/nvidia{number}",) for number in range(80)}
        found["spec refused"] = not specs.put(KIND, new, "X")
        found["old spec whole"] = specs.file(KIND).read_text() == before
        found["spec said"] = said.has("lockstep.dev-gpu.json: No space left")
        fillers += fill(disk)

        capture = machines.save(folder, machines.machine())
        agent = Agent(Settings(node="n", kubelet_dir=disk, capture=capture, report_every_s=0.2))
        agent.start()
        eventually(lambda: said.has("-1.sock: No space left on device"))
        found["socket said"] = True
        found["no traceback"] = not said.has("Traceback")
        for filler in fillers:
            filler.unlink(missing_ok=True)
        eventually(lambda: kubelet.allocatable.get(GPU) == 8)
        found["healed"] = gpus(kubelet.add_pod(pod("a", 2)))
        found["new spec"] = specs.put(KIND, new, "X")

        fillers = fill(disk)
        found["refused, not lost"] = len(kubelet.held()) == 1
        eventually(lambda: len(agent.node.state.grants) == 1)
        found["running"] = kubelet.start_pod("uid-a").ok
        agent.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
