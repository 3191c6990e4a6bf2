"""Decides which MIG slices are healthy, and why the others are not. Pure.

A slice is unhealthy while its GPU is. Beyond that, an error that the driver confines to one GPU
instance, and that ends with the process it hit, makes only the slices of that instance unhealthy,
for one hold-down."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.health.gpu_health import (
    DeviceHealth,
    HoldDown,
    XidEvent,
    advance,
    confined_to_slices,
    reason,
)
from agent.machine import xid_rules
from protos import slicing
from protos.topology import Gpu, NodeTopology, Slice


def step(
    known: Mapping[str, DeviceHealth],
    topology: NodeTopology,
    events: Iterable[XidEvent],
    *,
    now: float,
    hold_down: HoldDown,
) -> tuple[dict[str, DeviceHealth], NodeTopology]:
    """The health of each slice by uuid, and the topology to report. `topology` has the GPUs' health
    after their hold-down."""
    events = tuple(events)
    following: dict[str, DeviceHealth] = {}
    gpus = []
    for gpu in topology.gpus:
        parts = []
        for part in gpu.slices:
            health = known.get(part.uuid, DeviceHealth(since=now))
            xids = [e.xid for e in events if confined_to_slices(e, gpu) and _hits(e, part)]
            cause = xid_rules.classify(xids[0])[1] if xids else None
            health = advance(health, cause, now, hold_down)
            if cause:  # over as soon as it has happened
                health = replace(health, clear_since=now)
            following[part.uuid] = health
            why = reason(health, hold_down) if gpu.healthy else gpu.why
            parts.append(replace(part, healthy=not why, why=why))
        gpus.append(replace(gpu, slices=tuple(parts)) if parts else gpu)
    return following, replace(topology, gpus=tuple(gpus))


def _hits(event: XidEvent, part: Slice) -> bool:
    return event.gi == part.gi and event.ci in (-1, part.ci)


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """One log message for each slice whose own health changed, its GPU being healthy."""
    before = {part.uuid: part for _, part in slicing.of(known)}
    messages = []
    for gpu, part in slicing.of(now):
        old = before.get(part.uuid)
        if old is None or not gpu.healthy:
            continue
        if not part.healthy and old.why != part.why:
            messages.append(f"{slicing.words(gpu, part)} is unhealthy: {part.why}")
        elif part.healthy and not old.healthy:
            messages.append(f"{slicing.words(gpu, part)} is healthy again")
    return tuple(messages)


def layout_changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """One log message for each GPU whose division into slices changed."""
    before = {gpu.uuid: gpu for gpu in known.gpus}
    return tuple(
        f"GPU {gpu.index} ({gpu.uuid}) is {_layout(gpu)}"
        for gpu in now.gpus
        if _layout(before.get(gpu.uuid)) != _layout(gpu)
    )


def _layout(gpu: Gpu | None) -> str:
    if gpu is None or not gpu.mig:
        return "whole"
    profiles = [part.profile for part in gpu.slices]
    return f"in MIG slices: {', '.join(profiles)}" if profiles else "in MIG mode without slices"
