"""Two results of the simulator side by side: what is different for which gang. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from central.model.object_names import NamespacedName
from central.model.wording import format_duration
from central.simulator.simulation_result import SimulationResult


@dataclass(slots=True)
class GangOutcome:
    """state: starts, waits, or unchanged for one that runs or does not exist. at_s: from now on."""

    state: str = "unchanged"
    at_s: float = 0.0
    nodes: tuple[str, ...] = ()
    gpus: float = 0.0
    reason: str = ""
    evicted: list[str] = field(default_factory=list)  # pods, each with its reason


@dataclass(frozen=True, slots=True)
class GangDifference:
    namespace: str
    name: str
    before: GangOutcome
    after: GangOutcome


def outcomes(
    result: SimulationResult, members: Mapping[NamespacedName, str]
) -> dict[NamespacedName, GangOutcome]:
    """members: the gangs of the pods that there were at the beginning, by namespace and pod."""
    found: dict[NamespacedName, GangOutcome] = {}
    gangs = dict(members)
    for placed in result.placed:
        name = placed.gang or placed.pod
        gangs[placed.namespace, placed.pod] = name
        one = found.setdefault((placed.namespace, name), GangOutcome("starts", placed.at_s))
        one.nodes = tuple(dict.fromkeys((*one.nodes, placed.node)))
        one.gpus += placed.amount
    for waits in result.waiting:
        one = found.setdefault((waits.namespace, waits.name), GangOutcome())
        one.state, one.reason = "waits", waits.reason
    for evicted in result.evicted:
        name = gangs.get((evicted.namespace, evicted.pod), evicted.pod)
        one = found.setdefault((evicted.namespace, name), GangOutcome())
        one.evicted.append(f"{evicted.pod} evicted from {evicted.node}: {evicted.reason}")
    return found


def differences(
    before: Mapping[NamespacedName, GangOutcome], after: Mapping[NamespacedName, GangOutcome]
) -> list[GangDifference]:
    """Returns the gangs that start at another time, on other nodes, or no more; that wait for another reason; and
    those evicted."""
    nothing = GangOutcome()
    found = []
    for key in sorted({*before, *after}):
        pair = before.get(key, nothing), after.get(key, nothing)
        if _essence(pair[0]) != _essence(pair[1]):
            found.append(GangDifference(*key, *pair))
    return found


def _essence(one: GangOutcome) -> tuple[object, ...]:
    return (one.state, round(one.at_s, 3), {*one.nodes}, one.reason, one.evicted)


def totals(
    before: SimulationResult, after: SimulationResult, drained: int = 0
) -> list[tuple[str, float, float]]:
    """Returns rows of a name, the value before, and the value after. drained: pods that the change moves."""
    numbers: tuple[tuple[str, Callable[[SimulationResult], float]], ...] = (
        ("GPUs in use now", _gpus_at_start),
        ("gangs pending at the end", lambda each: len(each.waiting)),
        ("pods evicted", lambda each: len(each.evicted)),
        ("GPU-hours lost to evictions", lambda each: round(each.gpu_seconds_lost / 3600, 2)),
    )
    rows = [(name, number(before), number(after)) for name, number in numbers]
    return [*rows, ("pods drained", 0, drained)] if drained else rows


def _gpus_at_start(result: SimulationResult) -> float:
    """Returns the GPUs in use after everything has been tried once, before time passes."""
    return result.loads[0].gpus if result.loads else 0.0


def sentence(one: GangOutcome, exists: bool) -> str:
    """exists: whether the cluster has this gang now."""
    parts = list(one.evicted[:3])
    if len(one.evicted) > 3:
        parts.append(f"{len(one.evicted) - 3} more pods evicted")
    if one.state == "starts":
        when = "at once" if one.at_s < 1 else f"after {format_duration(one.at_s)}"
        nodes = ", ".join(one.nodes[:4])
        more = f" and {len(one.nodes) - 4} more" if len(one.nodes) > 4 else ""
        parts.append(f"starts {when} on {nodes}{more}")
    elif one.state == "waits":
        parts.append(f"stays pending: {one.reason}")
    return "; ".join(parts) or ("keeps running" if exists else "does not exist")


def _plain(gang: dict[str, Any]) -> dict[str, Any]:
    """Lists for tuples, which YAML does not know."""
    for side in ("before", "after"):
        gang[side]["nodes"] = list(gang[side]["nodes"])
    return gang


def as_json(
    found: Iterable[GangDifference], sums: Iterable[tuple[str, float, float]], horizon_s: float
) -> dict[str, Any]:
    return {
        "horizon_s": horizon_s,
        "gangs": [_plain(asdict(each)) for each in found],
        "totals": [{"name": name, "before": one, "after": two} for name, one, two in sums],
    }
