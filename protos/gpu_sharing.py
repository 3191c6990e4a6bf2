"""Shares of GPUs. A share is a hundredth of one GPU, and all shares of a container are on the same
GPU. Agent and scheduler must choose that GPU alike, so the choice is a total order. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from protos.closest import closest
from protos.names import GPU_SHARE
from protos.nearest import device_of
from protos.topology import Grant, Shape, indices_of, mask_of

WHOLE = 100  # hundredths
SHARE = "share"  # key in a grant's limits: number of hundredths
MEMORY = "memory"  # key in an intent's limits: the pod's cap on GPU memory in bytes
LEAST = "least"  # key in an intent's limits: the lowest acceptable rank of enforcement
# How a cap on GPU memory is enforced: not at all; by eviction (watch); by MPS, MIG or the kernel,
# which refuse the allocation. A whole GPU needs no cap.
RANKS = {"none": 0, "watch": 1, "mps": 2, "mig": 3, "kernel": 3, "whole": 4}
# levels that a pod may request for a share
REQUESTABLE = tuple(word for word in RANKS if word != "whole")
HIGHEST = max(map(RANKS.__getitem__, REQUESTABLE))


def choose_gpu(shape: Shape, left: Mapping[int, int], needed: int) -> int:
    """The GPU for `needed` hundredths; -1 if none has as many free. left: free hundredths by GPU.

    The fullest shared GPU that fits, else the free GPU whose loss leaves the closest whole GPUs.
    Example: with 30 and 60 hundredths left on two shared GPUs, 25 go to the first and 40 to the
    second."""
    opened = [
        (free_shares, gpu) for gpu, free_shares in left.items() if needed <= free_shares < WHOLE
    ]
    if opened:
        return min(opened)[1]
    free = mask_of(gpu for gpu, free_shares in left.items() if free_shares >= max(needed, WHOLE))
    return next(indices_of(closest(shape, free, 1)), -1) if needed <= WHOLE else -1


def fold_shares(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Replaces the device ids of GPU shares by the GPU and the number of hundredths."""
    found: list[Grant] = []
    for grant in grants:
        if grant.resource != GPU_SHARE:
            found.append(grant)
            continue
        shares = Counter(map(device_of, set(grant.device_ids)))
        found += [
            Grant(*key_of(grant), GPU_SHARE, (gpu,), ((SHARE, count),))
            for gpu, count in sorted(shares.items())
        ]
    return tuple(found)


def key_of(grant: Grant) -> tuple[str, str, str]:
    return grant.namespace, grant.pod, grant.container


def hundredths(grant: Grant) -> int:
    """The number of hundredths of a grant after fold_shares()."""
    return dict(grant.limits).get(SHARE, 0)
