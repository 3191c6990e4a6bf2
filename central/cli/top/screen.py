"""The screen of `lockstep top`: which rows are shown, in which order, and what a key does. Pure: lines of text in, none
of them wider than the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from central.cli.terminal_table import printable
from central.cli.top.cluster_view import (
    PENDING_SORTS,
    QUEUE_SORTS,
    RACK_SORTS,
    ClusterView,
    TopGang,
    TopQueue,
    TopRack,
    age,
)
from protos.common.text_fold import fold

TABS = ("racks", "queues", "pending")
SORTS: dict[str, dict[str, Callable[[Any], tuple[object, ...]]]] = {
    "racks": RACK_SORTS,
    "queues": QUEUE_SORTS,
    "pending": PENDING_SORTS,
}
KEYS = "1-3 Tab view  s sort  r reverse  Enter explain  q quit"
BACK = "up/down scroll  Esc back  q quit"
BAR = 16
NAME_LEAST, WHY_LEAST, GAP = 16, 40, 2  # of the first and the last column in a narrow terminal
Style = Callable[[str, str], str]
REVERSE, BOLD, DIM, RED, PLAIN = "\x1b[7m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"
Cells = tuple[str, ...]


@dataclass(slots=True)
class ScreenState:
    """row: the highlighted one. chosen: its name, because rows move between drawing and the next key; below the first
    row the highlight follows its gang, queue or rack. text: of an open explanation, whose first line shown is `top`."""

    tab: str = "racks"
    sorts: dict[str, int] = field(default_factory=dict)  # by tab
    reverse: set[str] = field(default_factory=set)
    row: int = 0
    chosen: str = ""
    text: str = ""
    top: int = 0
    quit: bool = False
    explain: tuple[str, str] | None = None  # the gang that the user wants explained

    def sort(self) -> str:
        names = list(SORTS[self.tab])
        return names[self.sorts.get(self.tab, 0) % len(names)]


def press(state: ScreenState, key: str, view: ClusterView) -> None:
    """key: a character, or up, down, pageup, pagedown, enter, tab, escape."""
    if key in ("q", "\x03"):
        state.quit = True
    elif state.text:
        _press_in_text(state, key)
    elif key in ("up", "k", "down", "j", "pageup", "pagedown"):
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}[key]
        found = rows(state, view)
        state.row = min(max(0, _row(state, found) + step), max(0, len(found) - 1))
        state.chosen = _name(found[state.row]) if found else ""
    elif key == "tab" or key in ("1", "2", "3"):
        at = (TABS.index(state.tab) + 1) % len(TABS) if key == "tab" else int(key) - 1
        state.tab, state.row, state.chosen = TABS[at], 0, ""
    elif key == "s":
        state.sorts[state.tab] = state.sorts.get(state.tab, 0) + 1
        state.row, state.chosen = 0, ""
    elif key == "r":
        state.reverse ^= {state.tab}
        state.row, state.chosen = 0, ""
    elif key == "enter":
        found = rows(state, view)  # not drawn since the last key: the first one is highlighted
        chosen = (row for row in found if state.chosen in ("", _name(row)))
        _open(state, next(chosen, None))


def _open(state: ScreenState, row: TopRack | TopQueue | TopGang | None) -> None:
    if isinstance(row, TopGang):
        state.explain = (row.namespace, row.gang)
    elif isinstance(row, TopRack):
        state.text = _rack_text(row)


def _name(row: TopRack | TopQueue | TopGang) -> str:
    return f"{row.namespace}/{row.name}" if isinstance(row, TopGang) else row.name


def _row(state: ScreenState, found: Sequence[TopRack | TopQueue | TopGang]) -> int:
    """Returns the highlighted row: the chosen one if the user moved there and it still exists."""
    if state.row:
        for at, row in enumerate(found):
            if _name(row) == state.chosen:
                return at
    return min(state.row, max(0, len(found) - 1))


def _press_in_text(state: ScreenState, key: str) -> None:
    if key in ("escape", "enter"):
        state.text, state.top = "", 0
    elif key in ("up", "k"):
        state.top = max(0, state.top - 1)
    elif key in ("down", "j"):
        state.top += 1


def rows(state: ScreenState, view: ClusterView) -> Sequence[TopRack | TopQueue | TopGang]:
    found: Sequence[Any] = getattr(view, state.tab)
    ordered = sorted(found, key=SORTS[state.tab][state.sort()])
    return ordered[::-1] if state.tab in state.reverse else ordered


def draw(
    state: ScreenState, view: ClusterView, width: int, height: int, *, style: Style, note: str = ""
) -> list[str]:
    """Exactly `height` lines. style: coloured, monochrome or plain."""
    if state.text:
        lines = [part for line in state.text.splitlines() for part in fold(line, width)]
        state.top = min(state.top, max(0, len(lines) - height + 1))
        shown = lines[state.top : state.top + height - 1]
        return [*_filled(shown, height - 1), style(_cut(BACK, width), DIM)]
    found = rows(state, view)
    state.row = _row(state, found)
    state.chosen = _name(found[state.row]) if found else ""
    clock = f"{view.at:%H:%M:%S%z}" if view.at is not None else "no answer yet"
    head = _cut(f"lockstep top  {clock}  {view.totals()}", width)
    tabs = "  ".join(
        f"[{at}:{name}]" if name == state.tab else f" {at}:{name} "
        for at, name in enumerate(TABS, 1)
    )
    order = f"by {state.sort()}{', reversed' if state.tab in state.reverse else ''}"
    lines = [style(head, BOLD), _cut(f"{tabs}   {order}", width), ""]
    lines += _table(state, view, width, height - 5, style)
    problem = note or "; ".join(view.notes)
    foot = style(_cut(printable(problem), width), RED) if problem else ""
    return [*_filled(lines, height - 2), foot, style(_cut(KEYS, width), DIM)]


def _table(
    state: ScreenState, view: ClusterView, width: int, height: int, style: Style
) -> list[str]:
    titles, cells = CELLS[state.tab]
    found = rows(state, view)
    if not found:
        return [_cut(f"No {state.tab}" if state.tab != "pending" else "Nothing is pending", width)]
    first = max(0, min(state.row - height // 2, len(found) - height + 1))
    shown = found[first : first + height - 1]
    texts = [titles, *(tuple(map(printable, cells(row))) for row in shown)]
    widths = _widths(texts, width)
    lines = []
    for at, line in enumerate(texts):
        parts = [_cut(text, wide).ljust(wide) for text, wide in zip(line, widths, strict=True)]
        text = _cut((" " * GAP).join(parts).rstrip(), width)
        chosen = at and first + at - 1 == state.row
        lines.append(style(text.ljust(width), REVERSE).rstrip() if chosen else text)
    return lines


def _widths(texts: Sequence[Cells], width: int) -> list[int]:
    """Returns the widths of the columns. If they do not fit, the name in the first one is cut, so that a part of the
    last one is seen."""
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    others = sum(widths[1:-1]) + min(widths[-1], WHY_LEAST) + GAP * (len(widths) - 1)
    widths[0] = min(widths[0], max(NAME_LEAST, width - others))
    return widths


def _rack(row: TopRack) -> Cells:
    count = row.count
    filled = round(BAR * count.used / count.gpus) if count.gpus else 0
    bar = "#" * filled + "." * (BAR - filled)
    trouble = str(row.unhealthy + row.troubled) if row.unhealthy or row.troubled else "-"
    owners = ", ".join(row.owners) or "-"
    return (
        row.name,
        str(row.nodes),
        str(count.gpus),
        f"{count.used:g}",
        f"{count.free:g}",
        bar,
        trouble,
        owners,
    )


def _queue(row: TopQueue) -> Cells:
    name = row.lines + row.name
    counts = str(row.running), str(row.pending)
    return name, row.used, row.busy, row.idle, row.deserved, row.capability, *counts, row.state


def _pending(row: TopGang) -> Cells:
    return f"{row.namespace}/{row.name}", row.queue, str(row.minimum), age(row.created), row.reason


CELLS: dict[str, tuple[Cells, Callable[[Any], Cells]]] = {
    "racks": (("RACK", "NODES", "GPUS", "USED", "FREE", "", "TROUBLE", "HOLDERS"), _rack),
    "queues": (
        ("QUEUE", "USED", "BUSY", "IDLE", "DESERVED", "CAPABILITY", "RUN", "PENDING", "STATE"),
        _queue,
    ),
    "pending": (("GANG", "QUEUE", "MIN", "AGE", "WHY"), _pending),
}


def _rack_text(row: TopRack) -> str:
    return (
        f"rack {row.name}: {row.nodes} nodes, {row.count}, {row.unhealthy} unhealthy\n\n"
        f"Most GPUs: {', '.join(row.owners) or '-'}\n\n"
        f"lockstep topology -l rack={row.name} shows its nodes"
    )


def _filled(lines: Sequence[str], height: int) -> list[str]:
    return [*lines[:height], *[""] * (height - len(lines))]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def coloured(text: str, codes: str) -> str:
    return f"{codes}{text}{PLAIN}"


def monochrome(text: str, codes: str) -> str:
    """Colours only the highlighted row, for NO_COLOR."""
    return text if codes == RED else coloured(text, codes)


def plain(text: str, _codes: str) -> str:
    """Returns the text unchanged, for programs that read the output."""
    return text
