"""The capacity that queues share: what their pods use and what is free on schedulable nodes."""

from collections.abc import Callable, Set

from central.model.resources import GPU_EQUIVALENTS, Sums
from central.scheduler.inventory.columns import Columns
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BY_CLASS, GPU_SHARE


def total(
    snapshot: Snapshot,
    unschedulable: Set[str],
    currency: GpuCurrency,
    used: Sums,
    is_shared: Callable[[str], bool],
) -> Sums:
    """used: by all queues."""
    columns = snapshot.columns
    free = columns.free.sum(axis=0)
    free[0] = columns.gpus.count.sum()
    for name in unschedulable:
        if (row := columns.row.get(name)) is not None:
            free -= columns.free[row]
            free[0] += columns.free[row, 0] - columns.gpus.count[row]
    free_sums = {name: max(int(free[column]), 0) for name, column in columns.column.items()}
    found = {
        resource: amount + used.get(resource, 0)
        for resource, amount in free_sums.items()
        if is_shared(resource)
    }
    free_sums[GPU_SHARE] = _free_shares(columns, unschedulable) if GPU_SHARE in used else 0
    worth = currency.worth(free_sums.items()) + _free_devices(snapshot, unschedulable, currency)
    if whole := worth + used.get(GPU_EQUIVALENTS, 0):
        found[GPU_EQUIVALENTS] = whole
    return found


def _free_shares(columns: Columns, unschedulable: Set[str]) -> int:
    """Hundredths that are free on GPUs in use as shares."""
    shares, names = columns.gpus.free_shares, columns.names
    return sum(
        sum(left.values())
        for row, left in enumerate(shares)
        if left and names[row] not in unschedulable
    )


def _free_devices(snapshot: Snapshot, unschedulable: Set[str], currency: GpuCurrency) -> int:
    """The worth of the free devices of claims."""
    devices = snapshot.pod_counts.devices
    units = {
        name: worth
        for name, known in devices.classes.items()
        if (worth := currency.units(BY_CLASS + name) or currency.units(known.resource or ""))
    }
    return devices.free_worth(units, unschedulable) if units else 0
