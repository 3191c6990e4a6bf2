"""A program, because a process loads NVML once: reads the fake library while every call fails in turn, and while the
profile has absurd values. Prints a line for each thing that should not be, then how much was tried.

    python -m tests.agent.hostile.nvml_walk PROFILE CONTROL CALL..."""

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent import nvml
from agent.machine import plausible
from agent.machine.facts import Machine
from agent.machine.survey import survey
from agent.node_state import NodeState
from agent.nvml import computemode, memorylimits, processes, usage
from protos.topology import NodeTopology
from tests.agent.hostile.reported import accepted, node_of
from tests.effort import ALL_SEEDS, TODAY, seeds, some
from tests.fakes.nvml.control import Control

ERRORS = (1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 25, 26, 27, 29, 999, 4711, -5)
NUMBERS = ("-1", "0", "1", "255", "2147483647", "2147483648", "4294967295", "18446744073709551615")
TEXTS = (b"", b"\xff\xfe", b"x" * 95, b"\x1b[31mred", b"GPU-0\x07", "٣²".encode(), b"a/../../b")
NOT_SUPPORTED = 3
NEEDED = {
    "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
}  # fmt: skip
READ_S = 12.0  # of processor time
ODD = 3  # the GPU that is lied about
TEXT_KEYS = ("uuid", "name", "serial", "pci")
ROWS = {  # keys of the profile, and how many numbers each has
    "device_id": 1, "minor": 1, "module": 1, "capability": 1, "memory": 1, "numa": 1, "mig": 2, "p2p": 8, "levels": 8,
    "pcie": 2, "lost": 1, "ecc": 2, "rows": 3, "pages": 1, "recovery": 1, "used": 1, "utilization": 1, "power": 1,
    "temperature": 1, "fabric": 5, "platform": 5, "link": 4, "slice": 7, "cpus": 1, "nodes": 1,
}  # fmt: skip


def look(root: Path) -> Machine:
    """Everything that the agent asks the driver. Raises NvmlError."""
    facts = nvml.read(root)
    uuids = [gpu.uuid for gpu in facts.gpus if gpu.uuid]
    for ask in (
        lambda: usage.read(root, dict.fromkeys(uuids, (0, 1))),
        lambda: processes.read(root, uuids),
        lambda: computemode.read(root, uuids[0]),
        lambda: memorylimits.read(root, uuids[0], root),
    ):
        with contextlib.suppress(nvml.NvmlError, IndexError):
            ask()
    return Machine(nvml=facts)


def topology(root: Path, where: str) -> NodeTopology | None:
    """As the agent would report it; None if the driver cannot be asked."""
    began = time.process_time()
    try:
        found, _ = plausible.checked(look(root))
    except nvml.NvmlError:
        return None
    made = survey(found)
    accepted(node_of(NodeState(topology=made)), where)
    assert time.process_time() - began < READ_S, where
    return made


def lies(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """The profile with each line of one GPU replaced, and lines that it lacks."""
    start = [n for n, line in enumerate(lines) if line == b"gpu"][ODD] + 1
    for key in TEXT_KEYS:
        for text in TEXTS:
            yield f"{key} {text!r}", _with(lines, start, key, text)
    for key, count in ROWS.items():
        for number in NUMBERS:
            words = " ".join([number] * count)
            yield f"{key} {words}", _with(lines, start, key, words.encode())


def _with(lines: list[bytes], start: int, key: str, value: bytes) -> bytes:
    """A line counts over those before it."""
    end = next((n for n in range(start, len(lines)) if lines[n] == b"gpu"), len(lines))
    changed = [*lines[:end], key.encode() + b" " + value, *lines[end:]]
    return b"\n".join(changed) + b"\n"


def others(found: NodeTopology) -> Any:
    kept = [n for n in range(len(found.gpus)) if n != ODD]
    links = [[found.links[a][b] for b in kept] for a in kept]
    gpus = [found.gpus[n] for n in kept]
    if any(gpu.uuid == found.gpus[ODD].uuid for gpu in gpus):
        return links
    return links, gpus


class Walk:
    def __init__(self, profile: Path, control: Path) -> None:
        self.profile, self.control, self.root = profile, Control(control), profile.parent
        self.text = profile.read_bytes()
        self.seen = self.unread = 0
        self.before = topology(self.root, "as it is")
        assert self.before is not None

    def failing(self, calls: list[str]) -> None:
        dice = random.Random(f"nvml {TODAY}")
        for call in calls:
            for error in (NOT_SUPPORTED, *dice.sample(ERRORS, 5 if ALL_SEEDS else 1)):
                self._fails(f"{call} fails with {error}", {call: error})
        for number in seeds(60):
            some = {call: dice.choice(ERRORS) for call in dice.sample(calls, 5)}
            self._fails(f"{number}: {some}", some)

    def _fails(self, where: str, errors: dict[str, int]) -> None:
        for call, error in errors.items():
            self.control.fail(call, error)
        found = self._try(where)
        optional = set(errors.values()) == {NOT_SUPPORTED} and not NEEDED & errors.keys()
        if optional and not (found and all(gpu.healthy for gpu in found.gpus)):
            print(f"{where}: GPUs are unhealthy for lack of a call that old drivers lack")
        self.control.forget("fail")

    def lying(self) -> None:
        for where, text in some([*lies(self.text.rstrip(b"\n").split(b"\n"))]):
            self.profile.write_bytes(text)
            found = self._try(where)
            if found is not None and len(found.gpus) != 8:
                print(f"{where}: {len(found.gpus)} GPUs")
            elif found is not None and self.before and others(found) != others(self.before):
                print(f"{where}: another GPU changed")
        for count in ("4", "12", "4294967295"):
            self.profile.write_bytes(b"count " + count.encode() + b"\n" + self.text)
            self._try(f"count {count}")
        self.profile.write_bytes(self.text)
        if topology(self.root, "mended") != self.before:
            print("the mended machine is another")

    def _try(self, where: str) -> NodeTopology | None:
        self.seen += 1
        try:
            found = topology(self.root, where)
        except Exception as error:  # noqa: BLE001  what the walk looks for
            print(f"{where}: {error!r:.300}")
            return None
        self.unread += found is None
        return found


def main(profile: str, control: str, *calls: str) -> None:
    walk = Walk(Path(profile), Path(control))
    walk.failing([call for call in calls if call not in ("nvmlShutdown", "nvmlErrorString")])
    walk.lying()
    print(f"tried {walk.seen} unread {walk.unread}")


if __name__ == "__main__":
    main(*sys.argv[1:])
