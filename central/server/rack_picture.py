"""Draws racks, nodes and GPUs in the terminal, with one letter per owner, so that it is readable without colour."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
OWNERS_SHOWN = 2  # of one GPU
FREE, UNFIT, MANY = "·", "x", "#"


@dataclass(frozen=True, slots=True)
class GpuCell:
    """One GPU; without an owner it is free. confirmed: its kubelet has reported the allocation."""

    owner: str = ""
    confirmed: bool = True
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class NodeRow:
    name: str
    cells: tuple[GpuCell, ...]


@dataclass(frozen=True, slots=True)
class Rack:
    title: str
    nodes: tuple[NodeRow, ...]


def racks(reply: "pb.TopologyReply") -> list[Rack]:
    """The topology as a picture: each GPU with the jobs, or the single pods, that use it."""
    found: dict[str, list[NodeRow]] = {}
    for node in reply.nodes:
        count = node.count.gpus
        sick = {gpu.index for gpu in node.topology.gpus if not gpu.healthy}
        owners: list[list[str]] = [[] for _ in range(count)]
        planned: set[int] = set()
        for holder in node.holders:
            for gpu in filter(count.__gt__, holder.gpus):
                owners[gpu].append(f"{holder.namespace}/{holder.job or holder.pod}")
                if not holder.confirmed:
                    planned.add(gpu)
        cells = [
            GpuCell(_together(owners[at]), at not in planned, at not in sick) for at in range(count)
        ]
        title = " · ".join(
            f"{level.rpartition('/')[2]} {domain}"
            for level, domain in zip(reply.levels, node.domains, strict=False)
            if domain
        )
        found.setdefault(title or "no rack", []).append(NodeRow(node.name, tuple(cells)))
    return [Rack(title, tuple(rows)) for title, rows in sorted(found.items())]


def _together(owners: Sequence[str]) -> str:
    """Names the owners of one GPU; shares can have several."""
    names = sorted({*owners})
    more = f" and {len(names) - OWNERS_SHOWN} more" if len(names) > OWNERS_SHOWN else ""
    return ", ".join(names[:OWNERS_SHOWN]) + more


def draw(console: Console, racks: Sequence[Rack]) -> None:
    """Draws as many racks side by side as fit."""
    owners = sorted(
        {cell.owner for rack in racks for row in rack.nodes for cell in row.cells if cell.owner}
    )
    signs = {
        owner: (LETTERS[at] if at < len(LETTERS) else MANY, COLOURS[at % len(COLOURS)])
        for at, owner in enumerate(owners)
    }
    boxes = [_box(rack, signs) for rack in racks]
    gap = "  "
    while boxes:
        line, width = [boxes.pop(0)], 0
        width = line[0][0].cell_len
        while boxes and width + len(gap) + boxes[0][0].cell_len <= console.width:
            width += len(gap) + boxes[0][0].cell_len
            line.append(boxes.pop(0))
        for at in range(max(map(len, line))):
            parts = [box[at] if at < len(box) else Text(" " * box[0].cell_len) for box in line]
            _print(console, Text(gap).join(parts))
    for entries in _lines(_legend(racks, signs), console.width):
        _print(console, entries)


def _box(rack: Rack, signs: dict[str, tuple[str, str]]) -> list[Text]:
    names = max((len(row.name) for row in rack.nodes), default=0)
    gpus = max((len(row.cells) for row in rack.nodes), default=0)
    inner = max(names + 2 + 2 * gpus, len(rack.title) + 1)
    top = Text(f"┌ {rack.title} ", "dim") + Text("─" * (inner - len(rack.title)) + "┐", "dim")
    lines = [top]
    for row in rack.nodes:
        line = Text("│ ", "dim") + Text(row.name.ljust(names + 2))
        for cell in row.cells:
            line += _cell(cell, signs)
        line += Text(" " * (inner + 2 - line.cell_len + 1)) + Text("│", "dim")
        lines.append(line)
    lines.append(Text("└" + "─" * (inner + 2) + "┘", "dim"))
    return lines


def _cell(cell: GpuCell, signs: dict[str, tuple[str, str]]) -> Text:
    if cell.owner:
        letter, colour = signs[cell.owner]
        return Text(letter + (" " if cell.confirmed else "?"), f"bold {colour}")
    if not cell.healthy:
        return Text(f"{UNFIT} ", "red")
    return Text(f"{FREE} ", "dim")


def _legend(racks: Sequence[Rack], signs: dict[str, tuple[str, str]]) -> list[Text]:
    cells = [cell for rack in racks for row in rack.nodes for cell in row.cells]
    parts = [
        Text(letter, f"bold {colour}") + Text(f" {owner}")
        for owner, (letter, colour) in signs.items()
    ]
    if any(not cell.owner and cell.healthy for cell in cells):
        parts.append(Text(f"{FREE} free"))
    if any(not cell.owner and not cell.healthy for cell in cells):
        parts.append(Text(f"{UNFIT} unhealthy"))
    if any(cell.owner and not cell.confirmed for cell in cells):
        parts.append(Text("? planned, not confirmed"))
    return parts


def _lines(parts: Sequence[Text], width: int) -> Iterator[Text]:
    """Yields lines with as many parts as fit; parts are not broken."""
    line = Text()
    for part in parts:
        if line and line.cell_len + 3 + part.cell_len > width:
            yield line
            line = Text()
        line = Text("   ").join([line, part]) if line else part
    yield line


def _print(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, highlight=False, soft_wrap=False)
