"""Decides which healthy GPUs are slow: limited by the NVLink fabric, or with lower clocks for lack of cooling or power.
A GPU is slow from the second survey in a row on, as clocks also fall for a moment when they change, and until a
hold-down without a finding. Pure.

Design: docs/design/gpu-health.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from agent.health.gpu_health import DeviceHealth, HoldDown, advance, reason
from agent.machine import findings
from agent.machine.facts import GpuFacts
from protos.topology import NodeTopology, Weak


class Speed(NamedTuple):
    health: DeviceHealth  # unhealthy: slow
    found: bool = True  # at the last survey; before the first one it counts as found


def step(
    known: Mapping[str, Speed],
    seen: NodeTopology,
    facts: Iterable[GpuFacts],
    *,
    now: float,
    hold_down: HoldDown,
) -> tuple[dict[str, Speed], NodeTopology]:
    """The speed of each GPU by uuid, and the topology to report."""
    by_uuid = {gpu.uuid: gpu for gpu in facts if not gpu.fault}
    following: dict[str, Speed] = {}
    weak = [pair for pair in seen.weak if pair.a != pair.b]
    for gpu in seen.gpus:
        before = known.get(gpu.uuid, Speed(DeviceHealth(since=now)))
        cause = findings.slow(by_uuid[gpu.uuid]) if gpu.uuid in by_uuid else None
        counted = cause if before.found or before.health.cause else None
        health = advance(before.health, counted, now, hold_down)
        following[gpu.uuid] = Speed(health, cause is not None)
        if gpu.healthy and health.cause:
            weak.append(Weak(gpu.index, gpu.index, reason(health, hold_down)))
    return following, replace(seen, weak=tuple(weak))


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """One log message for each GPU whose speed changed."""
    before, slow = known.slow(), now.slow()
    named = {gpu.index: f"GPU {gpu.index} ({gpu.uuid})" for gpu in now.gpus if gpu.healthy}
    found = [f"{named[i]} is slow: {why}" for i, why in slow.items() if before.get(i) != why]
    normal = [i for i in before if i not in slow and i in named]
    return (*found, *(f"{named[i]} is no longer slow" for i in normal))
