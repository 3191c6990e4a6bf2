"""Which slices are fit for work, and why not. Pure.

A slice is as fit as its GPU. Beside that, an error that the driver says stayed within one GPU instance,
and is over with the program that it hit, speaks against the slices of that instance alone, for a while."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.health.gpu_health import Case, Damping, Event, confined, judged, why
from agent.machine import xid_rules
from protos import slicing
from protos.topology import Gpu, NodeTopology, Slice

Cases = Mapping[str, Case]  # by uuid


def step(
    cases: Cases,
    topology: NodeTopology,
    events: Iterable[Event],
    *,
    now: float,
    damping: Damping,
) -> tuple[Cases, NodeTopology]:
    """topology: with what is believed of the GPUs."""
    events = tuple(events)
    kept: dict[str, Case] = {}
    gpus = []
    for gpu in topology.gpus:
        parts = []
        for part in gpu.slices:
            struck = [event for event in events if confined(event, gpu) and _hits(event, part)]
            case = _next(cases.get(part.uuid), struck, now, damping)
            kept[part.uuid] = case
            said = why(case, damping) if gpu.healthy else gpu.why
            parts.append(replace(part, healthy=not said, why=said))
        gpus.append(replace(gpu, slices=tuple(parts)) if parts else gpu)
    return kept, replace(topology, gpus=tuple(gpus))


def _hits(event: Event, part: Slice) -> bool:
    return event.gi == part.gi and event.ci in (-1, part.ci)


def _next(case: Case | None, struck: list[Event], now: float, damping: Damping) -> Case:
    found = xid_rules.xid(struck[0].xid)[1] if struck else None
    case = judged(case or Case(since=now), found, case is None, now, damping)
    return replace(case, well_since=now) if found else case  # it happened, and is over


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """A sentence for each slice whose own health changed."""
    before = {part.uuid: part for _, part in slicing.of(known)}
    said = []
    for gpu, part in slicing.of(now):
        old = before.get(part.uuid)
        if old is None or not gpu.healthy:
            continue
        if not part.healthy and old.why != part.why:
            said.append(f"{slicing.words(gpu, part)} is not fit: {part.why}")
        elif part.healthy and not old.healthy:
            said.append(f"{slicing.words(gpu, part)} is fit again")
    return tuple(said)


def divisions(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """A sentence for each GPU that is divided otherwise than before."""
    before = {gpu.uuid: gpu for gpu in known.gpus}
    return tuple(
        f"GPU {gpu.index} ({gpu.uuid}) is {_division(gpu)}"
        for gpu in now.gpus
        if _division(before.get(gpu.uuid)) != _division(gpu)
    )


def _division(gpu: Gpu | None) -> str:
    if gpu is None or not gpu.mig:
        return "whole"
    profiles = [part.profile for part in gpu.slices]
    return f"in slices: {', '.join(profiles)}" if profiles else "in MIG mode, without slices"
