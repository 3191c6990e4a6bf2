"""Choices of the pods that become a gang's minimum. Any pods that reach it will do, but the first ranks are preferred.

Pods of one task with equal specs are interchangeable, so a choice is a number of pods of each kind. The choices are
tried in the order of ranks, and those are left out that contain more pods of a kind than fit one by one now.

Design: docs/design/unlike-pods.md
"""

from collections.abc import Iterator, Mapping, Sequence

from central.model.facts import PodSpec
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import never_fits
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import first_ranks

TRIED = 16  # choices, for each gang and capacity epoch
VISITED = 2_000  # steps of the enumeration
Kind = tuple[str, PodSpec]


def smallest(
    snapshot: Snapshot, waiting: Sequence[Pod], count: int, short: Mapping[str, int]
) -> list[Pod]:
    """The first ranks that reach the minimum, without pods that can never start if others are enough.

    count: of pods that are missing. short: how many of them must be of each task. Empty if there are too few."""
    kinds = _by_kind(waiting)
    sound = {
        kind
        for kind in kinds
        if len(kinds) == 1
        or not never_fits.no_node_for_one(snapshot, snapshot.view(kind[1]).refresh_filter())
    }
    usable = [pod for pod in waiting if _kind(pod) in sound]
    found = (first_ranks(pods, count, short) for pods in (usable, waiting))
    return next((pods for pods in found if len(pods) >= count), [])


def others(
    snapshot: Snapshot, waiting: Sequence[Pod], count: int, short: Mapping[str, int]
) -> Iterator[list[Pod]]:
    """Further choices whose pods of each kind fit at the moment, the first ranks first, at most TRIED."""
    kinds = _by_kind(waiting)
    if len(kinds) < 2 or len(waiting) <= count:
        return
    most = [
        min(len(pods), int(snapshot.view(spec).refresh().by_row.sum()))
        for (_, spec), pods in kinds.items()
    ]
    tasks = [task for task, _ in kinds]
    for tried, chosen in enumerate(_choices(most, tasks, count, short)):
        if tried == TRIED:
            return
        found = {
            id(pod)
            for pods, number in zip(kinds.values(), chosen, strict=True)
            for pod in pods[:number]
        }
        yield [pod for pod in waiting if id(pod) in found]


def _choices(
    most: Sequence[int], tasks: Sequence[str], count: int, short: Mapping[str, int]
) -> Iterator[tuple[int, ...]]:
    """Numbers by kind that add up to count, at most `most` of each, with enough of each task; many of the
    first kinds first."""
    after = [sum(most[index:]) for index in range(len(most) + 1)]
    visited = 0

    def choose(chosen: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        nonlocal visited
        visited += 1
        index = len(chosen)
        if left > after[index] or visited > VISITED:
            return
        if index == len(most):
            have = dict.fromkeys(short, 0)
            for task, number in zip(tasks, chosen, strict=True):
                if task in have:
                    have[task] += number
            if all(have[task] >= least for task, least in short.items()):
                yield chosen
            return
        for number in range(min(most[index], left), -1, -1):
            yield from choose((*chosen, number), left - number)

    yield from choose((), count)


def _by_kind(waiting: Sequence[Pod]) -> dict[Kind, list[Pod]]:
    """The pods by task and spec, each where it comes first."""
    found: dict[Kind, list[Pod]] = {}
    for pod in waiting:
        found.setdefault(_kind(pod), []).append(pod)
    return found


def _kind(pod: Pod) -> Kind:
    return pod.seen.task, pod.spec
