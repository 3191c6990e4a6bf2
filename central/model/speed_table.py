"""The speed of an elastic job by its size and the number of its nodes, from annotation lockstep.dev/speed: `1:1 2:1.9
4:3.6 4/2:2.1`. `4/2` is four members on two nodes; a size without nodes holds on any number.

Between two sizes on as many nodes the speed is interpolated. Above the largest it does not grow. An entry may name a
GPU model, `A100=4:14.2`: the first pattern that matches the model of the job's GPUs has the table that holds. Entries
without one hold on all other GPUs.

Design: docs/design/elastic-speeds.md
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from central.model import limits
from central.model.arrays import Floats, Ints
from central.model.gpu_models import folded_model, is_model

LEAST, MOST = 1e-9, 1e12  # of a speed
_NUMBER = len(str(limits.REPLICAS))  # digits
_Series = tuple[tuple[int, float], ...]  # (members, speed), ascending
_ByNodes = tuple[tuple[int, _Series], ...]
_Points = dict[int, dict[int, float]]  # speed by nodes and members


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """by_nodes: for each number of nodes, 0 for any, what is known there; ascending. by_model: the same of GPU models,
    in the same unit, by pattern."""

    by_nodes: _ByNodes
    by_model: tuple[tuple[str, _ByNodes], ...] = ()

    def on(self, models: Collection[str]) -> "SpeedTable":
        """Returns the table for GPUs of these models: if there are several, its members wait for those on the
        slowest."""
        if not self.by_model or not models:
            return self
        return min((self._on(model) for model in models), key=lambda table: table.at(1, 1))

    def _on(self, model: str) -> "SpeedTable":
        there = (by_nodes for name, by_nodes in self.by_model if is_model(model, (name,)))
        return next((SpeedTable(by_nodes) for by_nodes in there), self)

    def at(self, members: int, nodes: int) -> float:
        """The speed in the table's unit, that of the most nodes that are known and not more."""
        if members <= 0:
            return 0.0
        known = [series for count, series in self.by_nodes if count <= nodes]
        return _interpolated((known or [self.by_nodes[0][1]])[-1], members)

    def at_each(self, members: Ints, nodes: Ints) -> Floats:
        """Returns at() of each pair; members above 0."""
        counts = [count for count, _ in self.by_nodes]
        chosen = np.maximum(np.searchsorted(counts, nodes, side="right") - 1, 0)
        found = np.zeros(len(members))
        for number in np.unique(chosen):
            here = chosen == number
            found[here] = _each_interpolated(self.by_nodes[number][1], members[here])
        return found

    def fastest(self, members: int) -> float:
        """The speed of the best place for so many that the table knows."""
        return float(self._fastest(np.array([members]))[0])

    def _fastest(self, members: Ints) -> Floats:
        """fastest() of each; members ascend."""
        (_, first), *others = self.by_nodes
        found = np.empty(len(members))
        for start, stop, speeds in _pieces(first, members):
            found[start:stop] = speeds
        for _, series in others:
            for start, stop, speeds in _pieces(series, members)[1:]:
                np.maximum(found[start:stop], speeds, out=found[start:stop])
        return found

    def useful(self, sizes: Iterable[int]) -> tuple[int, ...]:
        """Returns the sizes, of an ascending list, that are faster than all smaller ones, each in its best place."""
        members = np.fromiter(sizes, dtype=np.int64)
        speeds = self._fastest(members)
        below = np.concatenate(([0.0], np.maximum.accumulate(speeds)[:-1]))
        return tuple(members[speeds > below].tolist())


def _interpolated(series: _Series, members: int) -> float:
    index = bisect_right(series, members, key=lambda point: point[0])
    if index == 0:
        size, speed = series[0]
        return speed * members / size
    below, speed = series[index - 1]
    if index == len(series):
        return speed
    above, faster = series[index]
    return speed + (faster - speed) * (members - below) / (above - below)


def _each_interpolated(series: _Series, members: Ints) -> Floats:
    """_interpolated() of each, bit for bit."""
    sizes, speeds = (np.array(each, dtype=np.float64) for each in zip(*series, strict=True))
    index = np.searchsorted(sizes, members, side="right")
    below, above = np.maximum(index - 1, 0), np.minimum(index, len(sizes) - 1)
    span = np.where(above > below, sizes[above] - sizes[below], 1.0)
    between = speeds[below] + (speeds[above] - speeds[below]) * (members - sizes[below]) / span
    found: Floats = np.where(index == 0, speeds[0] * members / sizes[0], between)
    return found


def _pieces(series: _Series, ascending: Ints) -> list[tuple[int, int, Floats]]:
    """_each_interpolated() of sizes that ascend, cut at the points of the series: first below all of them, then from
    each point on. The start and end of a piece in `ascending`, and its speeds. A tenant may list 64 series for 100,000
    sizes, and a piece has one formula for all its sizes."""
    starts = np.searchsorted(ascending, [size for size, _ in series]).tolist()
    least, slowest = series[0]
    found = [(0, starts[0], slowest * ascending[: starts[0]] / least)]
    ends = zip(series, starts, [*series[1:], (0, 0.0)], [*starts[1:], len(ascending)], strict=True)
    for (below, speed), start, (above, faster), stop in ends:
        over = ascending[start:stop] - below
        between = (
            speed + (faster - speed) * over / (above - below)
            if above
            else np.full(len(over), speed)
        )
        found.append((start, stop, between))
    return found


@lru_cache(maxsize=256)
def parse(text: str) -> SpeedTable:
    """Raises ValueError, with the entry that is wrong."""
    if len(text) > limits.SPEED_TEXT:
        raise ValueError(f"{len(text)} characters; at most {limits.SPEED_TEXT} are accepted")
    entries = text.split()
    if not 2 <= len(entries) <= limits.SPEEDS:
        raise ValueError(f"{len(entries)} entries, not 2 to {limits.SPEEDS}")
    found: dict[str, _Points] = {"": {}}
    for entry in entries:
        model, nodes, members, speed = _entry(entry)
        points = found.setdefault(model, {}).setdefault(nodes, {})
        if members in points:
            raise ValueError(f'"{entry[:40]}": this size stands twice')
        points[members] = speed
    if len(found) > limits.SPEED_MODELS + 1:
        raise ValueError(
            f"{len(found) - 1} different GPU models; at most {limits.SPEED_MODELS} are accepted"
        )
    others = _series(found.pop(""))
    if not others:
        raise ValueError("every entry names a GPU model; some have to hold on all others")
    return SpeedTable(others, tuple((model, _series(points)) for model, points in found.items()))


def _series(points: _Points) -> _ByNodes:
    if len(points) > limits.SPEED_NODES:
        raise ValueError(
            f"{len(points)} different numbers of nodes; at most {limits.SPEED_NODES} are accepted"
        )
    return tuple((nodes, tuple(sorted(sizes.items()))) for nodes, sizes in sorted(points.items()))


def _entry(entry: str) -> tuple[str, int, int, float]:
    """GPU model, nodes, members and speed. Raises ValueError."""
    model, named, rest = entry.partition("=")
    size, _, speed = (rest if named else entry).partition(":")
    members, slash, nodes = size.partition("/")
    try:
        value = float(speed)
    except ValueError:
        value = 0.0
    known = folded_model(model) if named else ""
    if named and not known:
        raise ValueError(f'"{entry[:40]}": no GPU model before "="')
    if not (_is_count(members) and (_is_count(nodes) or not slash) and LEAST <= value <= MOST):
        raise ValueError(
            f'"{entry[:40]}" is not MEMBERS:SPEED, MEMBERS/NODES:SPEED or one of these after MODEL=, with numbers '
            f"up to {limits.REPLICAS} and speeds from {LEAST:g} to {MOST:g}"
        )
    return known, int(nodes or 0), int(members), value


def _is_count(text: str) -> bool:
    plain = text.isascii() and text.isdigit() and len(text) <= _NUMBER
    return plain and 1 <= int(text) <= limits.REPLICAS
