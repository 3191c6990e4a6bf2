"""GPUs, GPU shares, MIG slices and devices of claims in one currency, for all that a queue is limited to or entitled
to.

A Queue's `nvidia.com/gpu` is about GPU equivalents: a whole GPU of any vendor is 1, a share its hundredths, a MIG slice
its fraction of a GPU, a device of NVIDIA's DeviceClasses 1. They are counted in whole units, GPU_UNITS to a GPU, so
that sums are exact. GPU_UNITS is divisible by 100, 7 and 8; another fraction is rounded to the next unit. A key of
shares or slices in a Queue is about these alone.

A slice's fraction is its number of compute slices of seven (of four for the profiles that only an A30 has).
`--mig-fraction` sets other parts, also for other resources.

Design: docs/design/quotas.md
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from central.model.amounts import Amounts
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS, Sums
from protos.names import BY_CLASS, DRA_DRIVER, GPU, GPU_SHARE, MIG, OTHER_GPUS
from protos.slicing import is_slice

_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.(\d+gb)")
_OF_FOUR = ("1g.6gb", "2g.12gb", "4g.24gb")
_BY_DEFAULT = {
    GPU: Fraction(1),
    GPU_SHARE: Fraction(1, 100),
    BY_CLASS + DRA_DRIVER: Fraction(1),
    BY_CLASS + "gpu.nvidia.com": Fraction(1),
    BY_CLASS + "mig.nvidia.com": Fraction(1),
    **dict.fromkeys(OTHER_GPUS, Fraction(1)),
}


class GpuCurrency:
    def __init__(self, fractions: Mapping[str, Fraction] | None = None) -> None:
        """fractions: of one GPU, by resource, where the default is not right."""
        self.fractions = _BY_DEFAULT | dict(fractions or {})
        self._units: dict[str, int] = {}
        # Resources of other device plugins that count as GPUs or parts of them.
        self.others = frozenset(
            name
            for name in self.fractions
            if name not in (GPU, GPU_SHARE) and not is_slice(name) and not name.startswith(BY_CLASS)
        )

    def units(self, resource: str) -> int:
        """Returns the GPU equivalents of one of the resource, in GPU_UNITS; 0: it is not part of a GPU."""
        found = self._units.get(resource)
        if found is None:
            found = self._units[resource] = round(self._fraction(resource) * GPU_UNITS)
        return found

    def worth(self, requests: Iterable[tuple[str, int]]) -> int:
        """The GPU equivalents of the amounts by resource, in GPU_UNITS."""
        return sum(amount * self.units(resource) for resource, amount in requests)

    def offered(self, allocatable: Mapping[str, int]) -> int:
        """The GPU equivalents of a node's devices; shares are parts of its whole GPUs."""
        return self.worth(pair for pair in allocatable.items() if pair[0] != GPU_SHARE)

    def counted(self, sums: Sums) -> Sums:
        """The same sums, with their GPU equivalents beside the devices."""
        if worth := self.worth(sums.items()):
            return {**sums, GPU_EQUIVALENTS: worth}
        return sums

    def limits(self, amounts: Amounts) -> Sums:
        """A Queue's limits: nvidia.com/gpu limits all kinds together."""
        limits = dict(amounts)
        if (gpus := limits.pop(GPU, None)) is not None:
            limits[GPU_EQUIVALENTS] = gpus * GPU_UNITS
        return limits

    def entitled(self, amounts: Amounts) -> Sums:
        """Returns what a Queue is entitled to: shares and slices that it names are part of its GPU equivalents."""
        sums = self.limits(amounts)
        named = self.worth(sums.items())
        if named > sums.get(GPU_EQUIVALENTS, 0):
            sums[GPU_EQUIVALENTS] = named
        return sums

    def _fraction(self, resource: str) -> Fraction:
        if (known := self.fractions.get(resource)) is not None:
            return known
        if not is_slice(resource):
            return Fraction(0)
        found = _PROFILE.match(resource.removeprefix(MIG))
        if found is None:
            return Fraction(1, 7)
        compute, wide, memory = found.groups()
        whole = 4 if f"{wide}g.{memory}" in _OF_FOUR else 7
        return min(Fraction(1), Fraction(int(compute or wide), whole))
