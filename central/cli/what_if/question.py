"""One question: which change, of which cluster, how far ahead; and its answer."""

import argparse
import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from central.cli.what_if import changes, comparison, live_cluster
from central.cli.what_if.changes import QueueChange
from central.cli.what_if.comparison import GangDifference
from central.cli.what_if.live_cluster import LiveCluster
from central.model.json_types import Json
from central.server.scheduler_of_settings import scheduler_of
from central.server.settings import Settings
from central.simulator import documents, scenario
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult

Document = tuple[documents.SourceLocation, Json]
SchedulingFlags = argparse.Namespace | Settings  # what settings.add_scheduling_flags adds
NO_HARDWARE = (
    "the scheduler did not say what hardware there is: each node counts as one island of equal GPUs"
)


@dataclass(frozen=True, slots=True)
class Change:
    """cordon, drain: nodes, or domains such as rack=r1. without: jobs or gangs. submit: objects to create. namespace:
    of names without one."""

    cordon: Sequence[str] = ()
    drain: Sequence[str] = ()
    queues: Sequence[QueueChange] = ()
    without: Sequence[str] = ()
    submit: Sequence[Document] = ()
    namespace: str = "default"

    def __bool__(self) -> bool:
        return bool(self.cordon or self.drain or self.queues or self.without or self.submit)


@dataclass(frozen=True, slots=True)
class Answer:
    """running: the gangs of the cluster, by namespace and name. notes: sentences about what is not known."""

    gangs: list[GangDifference]
    totals: list[tuple[str, float, float]]
    horizon_s: float
    running: set[tuple[str, str]]
    notes: list[str] = field(default_factory=list)


def answer(
    cluster: LiveCluster,
    hardware: dict[str, Json],
    change: Change,
    flags: SchedulingFlags,
    horizon_s: float,
) -> Answer:
    """hardware: by node, as `lockstep topology -o json` prints it. Raises BadChange and BadInput."""
    for each in (*cluster.objects, *(obj for _, obj in change.submit)):
        live_cluster.leave_out_volumes(each)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        live_cluster.add_hardware(cluster.objects, hardware, Path(folder))
        changed, drained = _changed(change, cluster.objects, flags)
        before = _simulated(flags, cluster.objects, (), horizon_s)
        after = _simulated(flags, changed, change.submit, horizon_s)
    members = live_cluster.members(cluster.objects)
    found = comparison.differences(
        comparison.outcomes(before, members), comparison.outcomes(after, members)
    )
    running = {(namespace, gang) for (namespace, _), gang in members.items()}
    notes = [*cluster.unread, *([] if hardware else [NO_HARDWARE])]
    sums = comparison.totals(before, after, drained)
    return Answer(found, sums, horizon_s, running, notes)


def _changed(
    change: Change, objects: Sequence[Json], flags: SchedulingFlags
) -> tuple[list[Json], int]:
    """Returns a copy with the changes, and the number of drained pods. Raises BadChange."""
    changed = copy.deepcopy(list(objects))
    changes.cordon(changed, change.cordon, flags.topology_levels)
    empty = changes.cordon(changed, change.drain, flags.topology_levels)
    drained = changes.drain(changed, empty, flags.scheduler_names)
    for each in change.queues:
        changes.change_queue(changed, each)
    for name in change.without:
        changes.remove(changed, name, change.namespace)
    return changed, drained


def _simulated(
    flags: SchedulingFlags, objects: Sequence[Json], submit: Sequence[Document], until_s: float
) -> SimulationResult:
    """Raises BadInput."""
    place = documents.SourceLocation("the cluster", 1)
    given = [(place, copy.deepcopy(each)) for each in objects]
    read = scenario.read(
        [*given, *submit], flags.scheduler_names, flags.topology_levels, flags.pod_groups
    )
    return Simulation(read, scheduler_of(flags), until_s=until_s).run()
