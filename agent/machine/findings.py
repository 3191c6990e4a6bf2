"""What speaks against a GPU in what was just read of it. Pure."""

from dataclasses import dataclass

from agent.machine.facts import GpuFacts

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
