"""closest() chooses which of a node's free GPUs to use together. Agent and scheduler must choose
alike, so the choice is a total order. Pure. Of all sets with the requested size it returns the one

0. without a slow GPU, if there is one. (Among sets with a slow GPU their number does not count: the
   slowest sets the speed.)
1. whose pairs are closest in sum: by island, then number of NVLinks, then PCIe level, then NUMA
   node;
2. that leaves the closest pairs behind: it takes the island with the fewest free GPUs that
   suffices, and a GPU whose neighbour is taken rather than one of a free pair;
3. with the lowest indices.

Example: NVLink joins GPUs 0-1, 2-3, 4-5 and 6-7, and GPU 0 is taken. One GPU: 1, because every
other choice breaks a pair. Two GPUs: 2 and 3, the closest pair with the lowest indices.

The result is exact for up to 16 free GPUs, and for more if their positions are alike. Otherwise it
is greedy from every start, improved by exchanges.

Design: docs/design/topology.md
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from protos.topology import Shape, indices_of

# Closeness of the PCIe levels.
PCIE = {"PIX": 9, "PXB": 8, "PHB": 6, "NODE": 4, "SYS": 0}
EXACT_SETS = 1 << 16  # most pairs of half sets to try, enough for 16 GPUs without equals


@lru_cache(maxsize=1 << 16)
def closest(shape: Shape, free: int, size: int) -> int:
    """The mask of `size` of the `free` GPUs; 0 if fewer are free."""
    if (fast := free & ~shape.slow) != free and fast.bit_count() >= size > 0:
        return closest(shape, fast, size)
    gpus = tuple(indices_of(free))
    if size <= 0 or size > len(gpus):
        return 0
    if size == len(gpus):
        return free
    near = _pairs(shape, gpus)
    worth = _worth(near, size)
    classes = _alike(near)
    left, right = _halves(classes)
    if _sets(left) * _sets(right) <= EXACT_SETS:
        chosen = _exact(near, worth, (left, right), size)
    else:
        chosen = _greedy(near, worth, size)
    return sum(1 << gpus[position] for position in chosen)


@lru_cache(maxsize=256)
def _matrix(shape: Shape, count: int) -> tuple[tuple[int, ...], ...]:
    """The closeness of each pair as one number, in which each criterion outweighs all sums of the
    later ones. GPUs outside the shape are equally far from all."""
    island = {gpu: mask for mask in shape.islands for gpu in indices_of(mask)}
    pairs = count * count
    scale = (pairs, pairs * max(PCIE.values()) * pairs)  # of a PCIe step, of one NVLink
    most = max((_nvlinks(word) for row in shape.links for word in row), default=0)
    together = scale[1] * (most + 1) * pairs

    def pair(a: int, b: int) -> int:
        known = max(a, b) < shape.count
        word = shape.links[a][b] if known else ""
        value = scale[1] * _nvlinks(word) + scale[0] * PCIE.get(word, 0)
        if max(a, b) < len(shape.numa) and shape.numa[a] == shape.numa[b]:
            value += 1
        if a in island and island[a] == island.get(b):
            value += together
        return value

    return tuple(
        tuple(0 if a == b else pair(min(a, b), max(a, b)) for b in range(count))
        for a in range(count)
    )


def _nvlinks(word: str) -> int:
    return int(word[2:]) if word.startswith("NV") and word[2:].isdigit() else 0


def _pairs(shape: Shape, gpus: tuple[int, ...]) -> list[list[int]]:
    """The closeness of these GPUs only. From here on a GPU is its position among them."""
    matrix = _matrix(shape, max(shape.count, gpus[-1] + 1))
    return [[matrix[a][b] for b in gpus] for a in gpus]


@dataclass(frozen=True, slots=True)
class _Worth:
    """The value of a set: `pair` times the closeness of its pairs, plus `alone` of each of its
    GPUs. No two sets of equal size have the same value."""

    pair: int
    alone: tuple[int, ...]


def _worth(near: list[list[int]], size: int) -> _Worth:
    """The closeness left behind is that of all pairs, minus the pairs of every chosen GPU, plus the
    pairs inside the set. So among sets of equal closeness, the best has GPUs with the least total
    closeness to all others."""
    count = len(near)
    low = 1 << count
    here = [sum(row) for row in near]
    return _Worth(
        pair=low * (size * max(here) + 1),
        alone=tuple((1 << (count - 1 - gpu)) - low * here[gpu] for gpu in range(count)),
    )


def _alike(near: list[list[int]]) -> list[list[int]]:
    """Classes of interchangeable GPUs, of which only the lowest indices need to be tried. A machine
    with one NVSwitch fabric and two sockets has two classes."""
    classes: list[list[int]] = []
    for gpu in range(len(near)):
        for members in classes:
            other = members[0]
            if all(
                near[gpu][k] == near[other][k] for k in range(len(near)) if k not in (gpu, other)
            ):
                members.append(gpu)
                break
        else:
            classes.append([gpu])
    return classes


def _sets(classes: list[list[int]]) -> int:
    return prod(len(members) + 1 for members in classes)


def _halves(classes: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The classes in two parts with about equally many sets."""
    left: list[list[int]] = []
    right: list[list[int]] = []
    for members in sorted(classes, key=len, reverse=True):
        (left if _sets(left) <= _sets(right) else right).append(members)
    return left, right


@dataclass(slots=True)
class _Half:
    """All sets of one half of the classes. Each set but the first is an earlier one (`parent`) and
    one GPU more (`added`)."""

    members: list[tuple[int, ...]]
    parent: list[int]
    added: list[int]
    inside: list[int]  # value of the set by itself


def _half(near: list[list[int]], worth: _Worth, classes: list[list[int]], size: int) -> _Half:
    half = _Half([()], [0], [-1], [0])
    for members in classes:
        start = range(len(half.members))  # the sets without a GPU of this class
        for base in start:
            parent = base
            for gpu in members[: size - len(half.members[base])]:
                taken = half.members[parent]
                gain = worth.pair * sum(near[gpu][other] for other in taken) + worth.alone[gpu]
                half.members.append((*taken, gpu))
                half.parent.append(parent)
                half.added.append(gpu)
                half.inside.append(half.inside[parent] + gain)
                parent = len(half.members) - 1
    return half


def _exact(
    near: list[list[int]], worth: _Worth, halves: tuple[list[list[int]], list[list[int]]], size: int
) -> tuple[int, ...]:
    """The best union of a set of each half with `size` GPUs (meet in the middle). The closeness
    between two sets is built up GPU by GPU, one row of right sets at a time."""
    left = _half(near, worth, halves[0], size)
    right = _half(near, worth, halves[1], size)
    by_size: list[list[int]] = [[] for _ in range(size + 1)]
    for position, taken in enumerate(right.members):
        by_size[len(taken)].append(position)
    to_right = {
        gpu: _to_half(near[gpu], worth.pair, right) for members in halves[0] for gpu in members
    }
    # By left set: the value of every right set joined with it, without the left set's own value.
    rows = [right.inside]
    best, found = None, (0, 0)
    for position, taken in enumerate(left.members):
        if position:
            row = rows[left.parent[position]]
            rows.append([a + b for a, b in zip(row, to_right[left.added[position]], strict=True)])
        row = rows[position]
        partners = by_size[size - len(taken)]
        if not partners:
            continue
        partner = max(partners, key=row.__getitem__)
        total = left.inside[position] + row[partner]
        if best is None or total > best:
            best, found = total, (position, partner)
    return left.members[found[0]] + right.members[found[1]]


def _to_half(near: list[int], pair: int, half: _Half) -> list[int]:
    """The value of the pairs between one GPU and each set of the other half."""
    result = [0]
    for position in range(1, len(half.members)):
        result.append(result[half.parent[position]] + pair * near[half.added[position]])
    return result


def _greedy(near: list[list[int]], worth: _Worth, size: int) -> tuple[int, ...]:
    """Starts from each GPU (beyond 32, from every fourth: the time grows with the fourth power),
    adds the GPU with the most gain until there are `size`, and then exchanges one GPU for another
    while that improves the set."""
    best, found = None, frozenset[int]()
    for start in range(0, len(near), 1 if len(near) <= 32 else 4):
        chosen = _grow(near, worth, {start}, size)
        while better := _exchange(near, worth, chosen):
            chosen = better
        total = _total(near, worth, chosen)
        if best is None or total > best:
            best, found = total, frozenset(chosen)
    return tuple(sorted(found))


def _gain(near: list[list[int]], worth: _Worth, gpu: int, others: Iterable[int]) -> int:
    return worth.pair * sum(near[gpu][other] for other in others) + worth.alone[gpu]


def _grow(near: list[list[int]], worth: _Worth, chosen: set[int], size: int) -> set[int]:
    while len(chosen) < size:
        rest = (gpu for gpu in range(len(near)) if gpu not in chosen)
        chosen = chosen | {max(rest, key=lambda gpu: _gain(near, worth, gpu, chosen))}
    return chosen


def _exchange(near: list[list[int]], worth: _Worth, chosen: set[int]) -> set[int] | None:
    """The best set that differs in one GPU, if it is better than `chosen`."""
    best, found = 0, None
    rest = [gpu for gpu in range(len(near)) if gpu not in chosen]
    link = [sum(near[gpu][other] for other in chosen) for gpu in range(len(near))]
    for out in sorted(chosen):
        loss = worth.pair * link[out] + worth.alone[out]
        for into in rest:
            gain = worth.pair * (link[into] - near[into][out]) + worth.alone[into] - loss
            if gain > best:
                best, found = gain, (out, into)
    return (chosen - {found[0]}) | {found[1]} if found else None


def _total(near: list[list[int]], worth: _Worth, chosen: set[int]) -> int:
    pairs = sum(near[a][b] for a in chosen for b in chosen if a < b)
    return worth.pair * pairs + sum(worth.alone[gpu] for gpu in chosen)
