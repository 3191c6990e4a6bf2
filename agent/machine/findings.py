"""What speaks against a GPU: in what was just read of it, and in the XIDs that the driver sent. Pure.

An XID is the driver's number for an error. Many are the fault of a program, and the next one runs
well; some leave the GPU in need of a reset. What is not in the table is said, and nothing is done.
"""

from dataclasses import dataclass
from typing import Literal

from agent.machine.facts import GpuFacts

# program: the GPU is well. restart: it is, once the program that was hit has gone. reset: it is not
# until it was reset. look: the readings tell. All but the first are said to people.
Class = Literal["program", "restart", "reset", "look", "unknown"]

PROGRAM: Class = "program"
RESTART: Class = "restart"
RESET: Class = "reset"
LOOK: Class = "look"
UNKNOWN: Class = "unknown"

XIDS: dict[int, tuple[Class, str]] = {
    13: (PROGRAM, "a program made the graphics engine fail"),
    31: (PROGRAM, "a program reached for memory that is not its own"),
    43: (PROGRAM, "a program made the GPU stop its work"),
    45: (PROGRAM, "a program's work was cleaned up"),
    48: (RESET, "a memory error of two bits"),
    62: (RESET, "the GPU's microcontroller halted"),
    63: (LOOK, "a memory page or row was retired"),
    64: (RESET, "a memory page or row could not be retired"),
    68: (PROGRAM, "a program made the video engine fail"),
    74: (RESET, "NVLink failed"),
    79: (RESET, "the GPU has fallen off the bus"),
    92: (LOOK, "many memory errors of one bit"),
    94: (RESTART, "a memory error, contained in one program"),
    95: (RESET, "a memory error that was not contained"),
    109: (PROGRAM, "a program took too long to switch"),
    119: (RESET, "the GPU's system processor does not answer"),
    120: (RESET, "the GPU's system processor failed"),
    140: (RESET, "a memory error that was not recovered"),
    143: (RESET, "the GPU could not be initialised"),
    **dict.fromkeys(range(144, 151), (RESET, "NVLink failed")),
    154: (LOOK, "the driver changed what it asks for"),
}

RECOVERY = {
    1: "to reset this GPU",
    2: "to reboot the node",
    3: "to take this GPU out of peer-to-peer traffic",
    4: "to drain the node and reset this GPU",
    5: "to recover the IMEX domain",
    6: "to reset the bus",
    7: "to reboot the whole system",
}
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")
COMPLETED, UNHEALTHY = 3, 2


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # for metrics: lost, fabric, recovery, rows, pages, nvlink, ecc, xid, silent
    why: str


def of(gpu: GpuFacts) -> Finding | None:
    """Why no work should be sent to this GPU, by what was read of it; the gravest first."""
    if gpu.fault:
        return Finding("lost", gpu.fault)
    if not gpu.uuid:
        return Finding("lost", "it tells no UUID")
    return _wear(gpu) or (None if gpu.mig else _fabric(gpu))


def _wear(gpu: GpuFacts) -> Finding | None:
    wear = gpu.wear
    if wear.recovery > 0:
        asked = RECOVERY.get(wear.recovery, f"for recovery action {wear.recovery}")
        return Finding("recovery", f"the driver asks {asked}")
    if wear.rows_failed:
        return Finding("rows", "a faulty memory row could not be remapped: replace the GPU")
    if wear.rows_pending:
        return Finding("rows", "a faulty memory row waits to be remapped: reset the GPU")
    if wear.pages_pending:
        return Finding("pages", "faulty memory pages wait to be retired: reset the GPU")
    return None


def _fabric(gpu: GpuFacts) -> Finding | None:
    fabric = gpu.fabric
    if fabric is None or fabric.state == 0:
        return None
    if fabric.state != COMPLETED:
        state = FABRIC_STATES[fabric.state] if fabric.state < len(FABRIC_STATES) else fabric.state
        why = f"its NVLink fabric is not up (state: {state}); is the fabric manager running?"
        return Finding("fabric", why)
    if fabric.status:
        return Finding(
            "fabric", f"it could not join the NVLink fabric (NVML error {fabric.status})"
        )
    if fabric.health == UNHEALTHY:
        return Finding("fabric", "its NVLink fabric is not healthy")
    return None


def links(gpu: GpuFacts, known: frozenset[int]) -> Finding | None:
    """known: the links that have been up in this run. A link that never was may have no cable.
    In MIG mode they are not in use."""
    if gpu.mig:
        return None
    active = {link.link for link in gpu.nvlinks if link.active}
    down = sorted(known - active)
    if not down:
        return None
    which = ", ".join(map(str, down[:4])) + (" ..." if len(down) > 4 else "")
    return Finding(
        "nvlink", f"NVLink {which} went down ({len(known) - len(down)} of {len(known)} are up)"
    )


def xid(code: int) -> tuple[Class, Finding]:
    kind, words = XIDS.get(code, (UNKNOWN, "not in our table"))
    return kind, Finding("xid", f"XID {code}: {words}")
