"""Shares of a GPU: hundredths of it, all of a container's from the same one. Which GPU is opened for
shares, and which is filled first, agent and centre must choose alike, so the choice is a total order. Pure."""

from collections.abc import Iterable, Mapping

from protos.closest import closest
from protos.names import GPU_SHARE
from protos.nearest import card_of
from protos.topology import Grant, Shape, indices_of, mask_of

WHOLE = 100  # hundredths
SHARE = "share"  # in a grant's limits: how many of them
MEMORY = "memory"  # in an intent's limits: bytes that the pod may have of its GPU
LEAST = "least"  # and how surely at least that must hold: a rank
# How surely what a container may have of a GPU's memory holds: not at all; who exceeds it is evicted;
# MPS, MIG or the kernel refuse more. The whole GPU is a container's own: there is nobody to mind.
RANKS = {"none": 0, "watch": 1, "mps": 2, "mig": 3, "kernel": 3, "whole": 4}
WISHES = tuple(word for word in RANKS if word != "whole")  # what a pod may ask of a share
HIGHEST = max(map(RANKS.__getitem__, WISHES))


def pick(shape: Shape, left: Mapping[int, int], wanted: int) -> int:
    """The GPU to take `wanted` hundredths of; -1: none has them. left: what may still be had, by GPU.

    The GPU that is shared already and will be left with the least; else the free one that whole
    GPUs miss the least."""
    opened = [(room, gpu) for gpu, room in left.items() if wanted <= room < WHOLE]
    if opened:
        return min(opened)[1]
    free = mask_of(gpu for gpu, room in left.items() if room >= max(wanted, WHOLE))
    return next(indices_of(closest(shape, free, 1)), -1) if wanted <= WHOLE else -1


def folded(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Grants of shares by the GPU and the number of hundredths, not device by device."""
    found: list[Grant] = []
    for grant in grants:
        if grant.resource != GPU_SHARE:
            found.append(grant)
            continue
        ids = tuple(map(card_of, grant.device_ids))
        found += [
            Grant(*key_of(grant), GPU_SHARE, (gpu,), ((SHARE, ids.count(gpu)),))
            for gpu in sorted(set(ids))
        ]
    return tuple(found)


def key_of(grant: Grant) -> tuple[str, str, str]:
    return grant.namespace, grant.pod, grant.container


def hundredths(grant: Grant) -> int:
    """Of a folded grant."""
    return dict(grant.limits).get(SHARE, 0)
