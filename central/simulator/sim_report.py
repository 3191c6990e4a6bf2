"""A simulation's result as JSON for programs and as a table for people."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from central.model import wording
from central.model.wording import format_duration
from central.simulator.simulation_result import Placed, Resized, SimulationResult

LONGEST_TABLE = 40


def to_json(result: SimulationResult) -> dict[str, Any]:
    return {
        "placements": _rows(result.placed, "namespace", "pod", "node", "gpus", "at_s"),
        "evictions": _rows(result.evicted, "namespace", "pod", "node", "reason", "at_s"),
        "sizes": _rows(result.resized, "namespace", "name", "members", "reason", "at_s"),
        "waiting": _rows(result.waiting, "namespace", "name", "reason", "pods"),
        "ended": _rows(result.ended, "namespace", "name", "at_s", "phase", "kind"),
        "metrics": metrics(result),
    }


def _rows(events: Sequence[Any], *fields: str) -> list[dict[str, Any]]:
    rows = [{field: getattr(event, field) for field in fields} for event in events]
    for row in rows:
        if "at_s" in row:
            row["at_s"] = _time(row["at_s"])
    return rows


def metrics(result: SimulationResult) -> dict[str, Any]:
    """turn_ms_* and decide_s_total are measured on this machine; all other times are virtual."""
    turns = sorted(result.turn_s)
    waits = sorted(placed.waited_s for placed in result.placed)
    return {
        "makespan_s": _time(result.makespan_s),
        "gpu_utilization": round(_utilization(result), 6),
        "gpus": result.gpus,
        "gpu_hours_used": round(result.gpu_seconds_used / 3600, 6),
        "gpu_hours_lost": round(result.gpu_seconds_lost / 3600, 6),
        "pods_placed": len(result.placed),
        "pods_waiting": sum(waits.pods for waits in result.waiting),
        "evictions": len(result.evicted),
        "resizes": len(_changes(result.resized)),
        "wait_s_mean": _time(sum(waits) / len(waits)) if waits else 0.0,
        "wait_s_p50": _time(percentile(waits, 0.5)),
        "wait_s_p99": _time(percentile(waits, 0.99)),
        "turns": len(turns),
        "turn_ms_p50": round(percentile(turns, 0.5) * 1000, 3),
        "turn_ms_p99": round(percentile(turns, 0.99) * 1000, 3),
        "decide_s_total": round(result.decide_s, 6),
        "end_s": _time(result.end_s),
        "stopped": result.stopped,
    }


def _changes(resized: Sequence[Resized]) -> list[Resized]:
    """Leaves out the first size of each elastic Job."""
    first: dict[tuple[str, str], Resized] = {}
    return [
        each for each in resized if first.setdefault((each.namespace, each.name), each) is not each
    ]


def _utilization(result: SimulationResult) -> float:
    """The share of the available GPU-seconds that was used; if no time passed, of the GPUs in use at the end."""
    if result.gpu_seconds_there > 0:
        return result.gpu_seconds_used / result.gpu_seconds_there
    used = result.loads[-1].gpus if result.loads else 0
    return used / result.gpus if result.gpus else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _time(seconds: float) -> float:
    return round(seconds, 6)


@dataclass(slots=True)
class _Row:
    pods: int = 0
    gpus: float = 0.0
    nodes: dict[str, None] = field(default_factory=dict)
    first_s: float = 0.0
    waited_s: float = 0.0


def table(result: SimulationResult, console: Console) -> None:
    """Whatever an object says stands there as it is, without markup and without control characters."""

    def say(text: str, style: str = "") -> None:
        console.print(_plain(text), style=style)

    shown = _placements(result.placed)
    if result.placed:
        console.print(shown)
    if len(shown.rows) < len({(p.namespace, p.gang or p.pod) for p in result.placed}):
        say(f"... only the first {LONGEST_TABLE}; -o json prints all", "dim")
    for evicted in result.evicted[:LONGEST_TABLE]:
        who = f"{evicted.namespace}/{evicted.pod}"
        when = format_duration(evicted.at_s)
        say(f"at {when}: {who} evicted from {evicted.node}: {evicted.reason}")
    if len(result.evicted) > LONGEST_TABLE:
        say(f"... {len(result.evicted)} evictions in total", "dim")
    changes = _changes(result.resized)
    for resized in changes[:LONGEST_TABLE]:
        who = f"{resized.namespace}/{resized.name}"
        size = wording.counted(resized.members, "member")
        say(f"at {format_duration(resized.at_s)}: {who} resized to {size}: {resized.reason}")
    if len(changes) > LONGEST_TABLE:
        say(f"... {len(changes)} changes of size in total", "dim")
    for waits in result.waiting[:LONGEST_TABLE]:
        say(f"{waits.namespace}/{waits.name} is pending: {waits.reason}", "yellow")
    if len(result.waiting) > LONGEST_TABLE:
        say(f"... {len(result.waiting)} pending in total", "dim")
    for line in _summary(result):
        say(line)


def _plain(text: str) -> Text:
    return Text("".join(each if each.isprintable() else "?" for each in text))


def _placements(placed: Sequence[Placed]) -> Table:
    rows: dict[str, _Row] = {}
    for each in placed:
        name = f"{each.namespace}/{each.gang or each.pod}"
        row = rows.setdefault(name, _Row(first_s=each.at_s))
        row.pods += 1
        row.gpus += each.amount
        row.waited_s = max(row.waited_s, each.waited_s)
        row.nodes[each.node] = None
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("PLACED", "PODS", "GPUS", "AT", "WAITED", "NODES"):
        shown.add_column(column, justify="left" if column in {"PLACED", "NODES"} else "right")
    for name, row in list(rows.items())[:LONGEST_TABLE]:
        nodes = list(row.nodes)
        more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
        shown.add_row(
            _plain(name),
            str(row.pods),
            f"{round(row.gpus, 2):.10g}",
            format_duration(row.first_s),
            format_duration(row.waited_s),
            _plain(", ".join(nodes[:4]) + more),
        )
    return shown


def _summary(result: SimulationResult) -> list[str]:
    numbers = metrics(result)
    ended = sum(ended.kind == "Pod" for ended in result.ended)
    rate = numbers["pods_placed"] / result.decide_s if result.decide_s else 0.0
    busy = f"; {100 * numbers['gpu_utilization']:.1f} % of {result.gpus} GPUs in use on average"
    lines = [
        f"{numbers['pods_placed']} pods placed, {ended} ended, {numbers['evictions']} evicted, "
        f"{numbers['pods_waiting']} pending",
        f"the last event was at {format_duration(result.makespan_s)}{busy if result.gpus else ''}",
        f"{wording.counted(numbers['turns'], 'cycle')}, {numbers['turn_ms_p50']:.2f} ms each "
        f"(99th percentile {numbers['turn_ms_p99']:.2f}); {result.decide_s:.3f} s spent deciding "
        f"({rate:,.0f} pods/s)",
    ]
    if result.stopped:
        lines.append(f"stopped: {result.stopped}")
    return lines
