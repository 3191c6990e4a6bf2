"""The nodes with their GPUs and who holds them. Only rows of the snapshot that changed are read again; all of them
once a minute, because a pod's queue or a node's label may change without a change of its capacity."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from central.model.facts import PodSpec
from central.model.gpu_count import NO_GPUS, GpuCount
from central.model.resources import GPU_UNITS
from central.scheduler.filters import gpu_model, node_filters
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import GangKey
from central.server.stats import count_gpus
from protos.names import GPU, OTHER_GPUS

ALL_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """The GPUs that one pod holds on a node."""

    pod: str
    gang: GangKey | None  # None: a pod of another scheduler
    namespace: str
    queue: str
    job: str  # the gang's owner, such as job/sweep, or its own name
    account: str  # its ServiceAccount
    mask: int  # of whole GPUs, or of the GPU of its share; 0: unknown
    gpus: float  # GPU equivalents
    whole: bool
    observed: bool = False  # pod-resources reports these devices
    leaving: bool = False
    began: float = 0.0  # Unix time; 0: it has not started


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    name: str
    path: tuple[str, ...] = ()  # its domains, widest first; empty: no label
    model: str = ""
    count: GpuCount = NO_GPUS
    island: int = 0  # of the free whole GPUs, the most in one island
    unhealthy: int = 0  # mask
    holders: tuple[HeldGpus, ...] = ()
    problem: str = ""
    version: int = 0  # of the table, when the row changed last


class NodeTable:
    """Read by ask_in_slices(loop, table.steps). rows is replaced as a whole at the end of a reading."""

    def __init__(self) -> None:
        self.rows: dict[str, SurveyedNode] = {}
        self.version = 0
        self.levels: tuple[str, ...] = ()
        self.gone_at = 0  # version in which a node was removed last
        self._mark = -1
        self._all_at = -ALL_AGAIN_S

    def steps(self, scheduler: Scheduler) -> Generator[None, None, None]:
        """Yields between two nodes."""
        columns = scheduler.state.snapshot.columns
        mark, dirty = columns.dirty.since(self._mark)
        now = scheduler.state.now
        names: list[str]
        if (
            dirty is None
            or now - self._all_at >= ALL_AGAIN_S
            or columns.domains.levels != self.levels
        ):
            names, self._all_at = list(columns.row), now
        else:
            names = list(dict.fromkeys(columns.names[row] for row in dirty if columns.names[row]))
        fresh, version = dict(self.rows), self.version + 1
        changed = False
        for name in names:
            row = self._row(scheduler, name)
            if row is not None and replace(row, version=0) != self._before(fresh, name):
                fresh[name] = replace(row, version=version)
                changed = True
            yield
        gone = [name for name in fresh if name not in scheduler.state.snapshot.columns.row]
        for name in gone:
            del fresh[name]
        self.levels = scheduler.state.snapshot.columns.domains.levels
        self.rows, self._mark = fresh, mark
        if changed or gone:
            self.version = version
        if gone:
            self.gone_at = version

    @staticmethod
    def _before(rows: dict[str, SurveyedNode], name: str) -> SurveyedNode | None:
        before = rows.get(name)
        return replace(before, version=0) if before is not None else None

    def _row(self, scheduler: Scheduler, name: str) -> SurveyedNode | None:
        columns = scheduler.state.snapshot.columns
        row, node = columns.row.get(name), scheduler.state.nodes.get(name)
        if row is None or node is None:
            return None
        topology = node.report.topology if node.report is not None else None
        unhealthy = 0
        for gpu in topology.gpus if topology is not None else ():
            unhealthy |= (not gpu.healthy) << gpu.index
        model = topology.gpus[0].model if topology is not None and topology.gpus else ""
        if not model and node.seen is not None:
            model = gpu_model.labelled(node.seen)
        count = count_gpus.of_node(scheduler, node)
        return SurveyedNode(
            name,
            columns.domains.path(row),
            model,
            count,
            min(count.whole, max(0, columns.gpus.island.item(row))),
            unhealthy,
            tuple(self._holders(scheduler, node)),
            problem_of(node, scheduler.state),
        )

    def _holders(self, scheduler: Scheduler, node: ClusterNode) -> Iterator[HeldGpus]:
        for pod in node.pods.values():
            claimed = scheduler.state.claimed_gpus(pod)
            units = scheduler.queues.currency.worth(pod.spec.requests)
            units += claimed.bit_count() * GPU_UNITS
            if pod.alive and units:
                yield _held(scheduler, pod, units / GPU_UNITS, claimed)


def _held(scheduler: Scheduler, pod: Pod, gpus: float, claimed: int) -> HeldGpus:
    seen, gang = pod.seen, scheduler.state.gang_of(pod)
    began = seen.started if seen.started is not None else pod.since
    return HeldGpus(
        seen.name,
        seen.gang_key,
        seen.namespace,
        gang.queue_name if gang is not None else "",
        (gang.owner or gang.name) if gang is not None else seen.owner_name or seen.name,
        seen.service_account or "default",
        pod.gpus | claimed,
        gpus,
        bool(pod.spec.request(GPU) or claimed),
        pod.observed or bool(claimed),
        pod.leaving,
        began or 0.0,
    )


def problem_of(node: ClusterNode, state: ClusterState) -> str:
    refusal = node_filters.refusal(PodSpec(()), node.seen, state.now) if node.seen else ""
    refusal = refusal or state.snapshot.last_choice.shared.get(node.name, "")
    if node.silent:
        return f"{refusal}; the agent has stopped reporting".removeprefix("; ")
    if not node.offered:
        return f"{refusal}; the agent or the kubelet is restarting".removeprefix("; ")
    if node.report is None and not OTHER_GPUS.intersection(
        node.seen.allocatable if node.seen else ()
    ):
        return f"{refusal}; no agent has reported".removeprefix("; ")
    return refusal
