"""A simulation's result as an SVG: GPUs in use over time by job (running pods, if no node has GPUs), and pending
pods and gangs below. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise

from central.model.wording import format_duration
from central.simulator.simulation_result import SimulationResult

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
OTHERS, INK, FAINT, GRID = "#c9ccd1", "#24292f", "#6e7781", "#e6e8eb"
PODS, GANGS = "#24292f", "#ff725c"
WIDTH, LEFT, RIGHT = 980, 64, 210
TOP, UPPER, GAP, LOWER = 44, 250, 44, 110
MOST_COLUMNS = 600  # with more changes than that, each column shows an average
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_DAY_S = 86400
ROOM_FOR = "room for "  # how reasons of elastic gangs that shrink for others begin

LevelChange = tuple[float, float]  # time, and by how much the level changes


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel's position and the scale of its axes."""

    y: float
    height: float
    most: float
    end_s: float

    def at(self, time_s: float, value: float) -> str:
        return f"{self.x(time_s):.1f},{self.up(value):.1f}"

    def x(self, time_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * time_s / self.end_s

    def up(self, value: float) -> float:
        return self.y + self.height * (1 - value / self.most)


def svg(result: SimulationResult) -> str:
    end_s = max(result.end_s, result.makespan_s) or 1.0
    title, by_job, most = "GPUs in use", result.held, float(result.gpus)
    if not result.gpus:
        title, by_job, most = "Pods running", result.ran, _most(result.ran)
    upper = _Panel(TOP, UPPER, max(most, 1), end_s)
    pods = _levels([(load.at_s, load.pods_waiting) for load in result.loads])
    gangs = _levels([(load.at_s, load.gangs_waiting) for load in result.loads])
    longest = max((load.pods_waiting for load in result.loads), default=0)
    lower = _Panel(TOP + UPPER + GAP, LOWER, max(longest, 1), end_s)
    height = TOP + UPPER + GAP + LOWER + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 24, title, bold=True),
        _text(LEFT, TOP + UPPER + GAP - 10, "Pending", bold=True),
        *_axes(upper, labels=False),
        *_stack(by_job, upper),
        *_needs(result, upper),
        *_axes(lower, labels=True),
        _line(pods, lower, PODS),
        _line(gangs, lower, GANGS),
        *_key(lower.y + 12, [("pods", PODS), ("gangs", GANGS)]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _most(changes: Sequence[tuple[float, str, float]]) -> float:
    return max(accumulate(more for _, _, more in changes), default=0.0)


def _stack(by_job: Sequence[tuple[float, str, float]], panel: _Panel) -> list[str]:
    jobs: dict[str, list[LevelChange]] = defaultdict(list)
    worth: dict[str, float] = defaultdict(float)
    for at_s, job, more in by_job:
        jobs[job].append((at_s, more))
        worth[job] += more * (panel.end_s - at_s)  # GPU-seconds until the end
    ranked = sorted(jobs, key=lambda job: (-worth[job], job))
    shown, rest = ranked[: len(COLOURS)], ranked[len(COLOURS) :]
    # The earliest jobs are at the bottom, so that the layers move little.
    shown.sort(key=lambda job: jobs[job][0][0])
    layers = [(job, COLOURS[place], jobs[job]) for place, job in enumerate(shown)]
    if rest:
        merged = sorted(change for job in rest for change in jobs[job])
        layers.insert(0, (f"{len(rest)} others", OTHERS, merged))
    grid = _grid([at for _, _, changes in layers for at, _ in changes], panel.end_s)
    parts, below = [], [0.0] * (len(grid) - 1)
    for _, colour, changes in layers:
        above = [b + m for b, m in zip(below, _means(changes, grid), strict=True)]
        outline = [*_steps(panel, grid, above), *reversed(_steps(panel, grid, below))]
        parts.append(f'<polygon points="{" ".join(outline)}" fill="{colour}"/>')
        below = above
    names = [(name, colour) for name, colour, _ in reversed(layers)]
    return [*parts, *_key(TOP + 8, names)]


def _needs(result: SimulationResult, panel: _Panel) -> list[str]:
    """Ticks on the upper edge: when elastic gangs shrank because others needed room."""
    times = {one.at_s for one in result.resized if one.reason.startswith(ROOM_FOR)}
    if not times:
        return []
    places = sorted({round(panel.x(at_s), 1) for at_s in times})
    path = "".join(f"M{x:.1f} {panel.y - 8:.0f}v7" for x in places)
    right = WIDTH - RIGHT + 18
    return [
        f'<path class="needs" d="{path}" stroke="{INK}" stroke-width="1.5"/>',
        _text(right, panel.y - 2, "| others needed room"),
    ]


def _grid(times: Sequence[float], end_s: float) -> list[float]:
    """The times between which all levels are drawn constant."""
    found = sorted({0.0, end_s, *(time for time in times if time < end_s)})
    if len(found) <= MOST_COLUMNS:
        return found
    return [end_s * column / MOST_COLUMNS for column in range(MOST_COLUMNS + 1)]


def _means(changes: Sequence[LevelChange], grid: Sequence[float]) -> list[float]:
    """The mean level in each interval of the grid."""
    means, level, at = [], 0.0, 0
    for begin, end in pairwise(grid):
        area, since = 0.0, begin
        while at < len(changes) and changes[at][0] < end:
            area += level * (max(changes[at][0], begin) - since)
            since = max(changes[at][0], begin)
            level += changes[at][1]
            at += 1
        means.append((area + level * (end - since)) / (end - begin))
    return means


def _levels(points: Sequence[LevelChange]) -> list[LevelChange]:
    """Turns levels at times into changes."""
    before = [0.0, *(value for _, value in points)]
    return [(at, value - last) for (at, value), last in zip(points, before, strict=False)]


def _steps(panel: _Panel, grid: Sequence[float], heights: Sequence[float]) -> list[str]:
    points = []
    for begin, end, height in zip(grid, grid[1:], heights, strict=False):
        points += [panel.at(begin, height), panel.at(end, height)]
    return points


def _line(changes: Sequence[LevelChange], panel: _Panel, colour: str) -> str:
    grid = _grid([at for at, _ in changes], panel.end_s)
    points = " ".join(_steps(panel, grid, _means(changes, grid)))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _axes(panel: _Panel, *, labels: bool) -> list[str]:
    right = WIDTH - RIGHT
    parts = []
    for value in _ticks(panel.most):
        y = panel.up(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{value:g}", anchor="end", colour=FAINT))
    step: float = next((s for s in _STEPS_S if panel.end_s / s <= 8), 0)
    if not step:
        step = _DAY_S * max(1, -(-int(panel.end_s) // (8 * _DAY_S)))
    if panel.end_s < 1:
        step = panel.end_s / 4
    count = int(panel.end_s / step + 1e-9)
    for time_s in (step * index for index in range(count + 1)):
        x = panel.x(time_s)
        parts.append(f'<path d="M{x:.1f} {panel.y}V{panel.y + panel.height}" stroke="{GRID}"/>')
        if labels:
            y = panel.y + panel.height + 18
            parts.append(_text(x, y, _clock(time_s), anchor="middle", colour=FAINT))
    return parts


def _clock(time_s: float) -> str:
    if time_s < 60 or time_s % 60:
        return format_duration(time_s)
    minutes = int(time_s // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48 and not minutes and not hours % 24:
        return f"{hours // 24} d"
    return f"{hours} h" if not minutes else f"{hours} h {minutes:02}"


def _ticks(most: float) -> list[float]:
    """About four round numbers up to the largest, which is one of them."""
    step = next(
        base * 10**power
        for power in range(12)
        for base in (1, 2, 5)
        if base * 10**power >= most / 4
    )
    ticks = [float(step * i) for i in range(int(most / step) + 1)]
    if len(ticks) > 1 and most - ticks[-1] <= step / 2:
        ticks.pop()
    return [*ticks, most]


def _key(y: float, names: Sequence[tuple[str, str]]) -> list[str]:
    parts, x = [], WIDTH - RIGHT + 18
    for place, (name, colour) in enumerate(names):
        at = y + 20 * place
        short = name if len(name) <= 26 else f"{name[:25]}…"
        parts.append(f'<rect x="{x}" y="{at - 9:.1f}" width="11" height="11" fill="{colour}"/>')
        parts.append(_text(x + 18, at + 1, short))
    return parts


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
