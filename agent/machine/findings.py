"""Finds errors in the facts of a GPU, and in its NVLinks compared with earlier. Pure."""

from dataclasses import dataclass

from agent.machine.facts import GpuFacts

RECOVERY = {
    1: "a reset of this GPU",
    2: "a reboot of the node",
    3: "to exclude this GPU from peer-to-peer traffic",
    4: "a drain of the node and a reset of this GPU",
    5: "recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the whole system",
}
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")
COMPLETED, UNHEALTHY, LIMITED = 3, 2, 3
# Reasons for lower clocks that are faults of cooling or power, gravest first: the bit of NVML, class, text. The other
# bits are load and settings: idle, clocks that were set, the power limit, synchronised boost.
SLOWDOWNS = (
    (0x40, "thermal", "the GPU is too hot: its hardware lowers the clocks"),
    (0x20, "thermal", "the GPU is too hot: the driver lowers the clocks"),
    (0x80, "power", "the power supply lowers the clocks (power brake)"),
    (0x08, "power", "the GPU's hardware lowers the clocks (power or temperature)"),
)
PREFLIGHT = "preflight: "  # begins the reason of a GPU that failed a check while it was idle
# Without any of these the slices of a GPU in MIG mode, or their sizes, are unknown.
MIG_CALLS = frozenset(
    f"nvmlDeviceGet{name}"
    for name in (
        "MigMode",
        "MaxMigDeviceCount",
        "MigDeviceHandleByIndex",
        "MemoryInfo",
        "UUID",
        "GpuInstanceId",
        "ComputeInstanceId",
        "Attributes_v2",
    )
)


@dataclass(frozen=True, slots=True)
class Finding:
    # The class in metrics: lost, fabric, recovery, rows, pages, permission, nvlink, ecc, xid, preflight, silent; of
    # slow GPUs: fabric, thermal, power.
    kind: str
    why: str


def from_facts(gpu: GpuFacts) -> Finding | None:
    """The gravest error of this GPU, or None."""
    if gpu.fault:
        return Finding("lost", gpu.fault)
    if not gpu.uuid:
        return Finding("lost", "NVML reports no UUID")
    return _wear(gpu) or _denied(gpu) or (None if gpu.mig else _fabric(gpu))


def _denied(gpu: GpuFacts) -> Finding | None:
    """MIG slices that the agent may not read are unknown, which is not the same as none."""
    refused = MIG_CALLS.intersection(gpu.denied)
    if not refused or not (gpu.mig or "nvmlDeviceGetMigMode" in refused):
        return None
    return Finding(
        "permission",
        f"the driver refuses the agent {min(refused)} in MIG mode: add components/mig to the "
        "agent's manifests",
    )


def _wear(gpu: GpuFacts) -> Finding | None:
    wear = gpu.wear
    if wear.recovery > 0:
        asked = RECOVERY.get(wear.recovery, f"recovery action {wear.recovery}")
        return Finding("recovery", f"the driver requests {asked}")
    if wear.rows_failed:
        return Finding("rows", "a faulty memory row could not be remapped: replace the GPU")
    if wear.rows_pending:
        return Finding("rows", "a faulty memory row is to be remapped: reset the GPU")
    if wear.pages_pending:
        return Finding("pages", "faulty memory pages are to be retired: reset the GPU")
    return None


def _fabric(gpu: GpuFacts) -> Finding | None:
    fabric = gpu.fabric
    if fabric is None or fabric.state == 0:
        return None
    if fabric.state != COMPLETED:
        state = FABRIC_STATES[fabric.state] if fabric.state < len(FABRIC_STATES) else fabric.state
        why = f"not registered with the NVLink fabric (state: {state}); is the fabric manager running?"
        return Finding("fabric", why)
    if fabric.status:
        return Finding(
            "fabric", f"could not register with the NVLink fabric (NVML error {fabric.status})"
        )
    if fabric.health == UNHEALTHY:
        return Finding("fabric", "the NVLink fabric is unhealthy")
    return None


def slow(gpu: GpuFacts) -> Finding | None:
    """Returns why the GPU works, but slower than others of its model; None if it does not."""
    if not gpu.mig and gpu.fabric is not None and gpu.fabric.health == LIMITED:
        return Finding("fabric", "the NVLink fabric has limited capacity")
    found = (Finding(kind, why) for bit, kind, why in SLOWDOWNS if gpu.clock_events & bit)
    return next(found, None)


def links(gpu: GpuFacts, known: frozenset[int]) -> Finding | None:
    """An error if one of the known links is down. `known` has the links that this process has seen
    active, as a link that never was may have no cable. MIG mode does not use NVLink."""
    if gpu.mig:
        return None
    active = {link.link for link in gpu.nvlinks if link.active}
    down = sorted(known - active)
    if not down:
        return None
    which = ", ".join(map(str, down[:4])) + (" ..." if len(down) > 4 else "")
    return Finding(
        "nvlink", f"NVLink {which} is down ({len(known) - len(down)} of {len(known)} are active)"
    )
