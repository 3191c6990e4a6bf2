"""The state of a scheduler, counted with plain loops over nodes, pods, queues and reservations."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from central.model.facts import PodSpec
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from protos.topology import indices_of
from tests.simulation import recount
from tests.simulation.reason_patterns import PARTS


class StateCounts:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.network = scheduler.state.network
        self.nodes = [node for node in scheduler.state.nodes.values() if node.seen is not None]

    def place(self, node: ClusterNode, level: str) -> str | None:
        """The node's domain of the level; the whole cluster for no level. None: it is in none."""
        if level in ("node", *PARTS):
            return node.name
        return next(iter(self.domain(node, level)), None) if level else ""

    def request(self, spec: PodSpec, name: str) -> int | Fraction:
        return recount.gpus(spec) if name == GPU else spec.request(name)

    def unused_guarantee(self, queue: Queue, name: str) -> int | Fraction:
        seen = queue.seen
        kept = dict(seen.guarantee).get(name, 0)
        if name in dict(seen.lending_limit):
            lent = dict(seen.lending_limit)[name]
            kept = max(kept, dict(seen.deserved).get(name, 0) - lent)
        own = kept - self.used(queue, name)
        return max(0, own, sum(self.unused_guarantee(child, name) for child in queue.children))

    def used(self, queue: Queue, name: str) -> int | Fraction:
        """By the gangs of the queue and of those below it. GPUs include shares and slices."""
        inside = {each.name for each in queue}
        return sum(
            self.request(pod.spec, name)
            for gang in self.scheduler.state.gangs.values()
            if gang.account is not None and gang.account.queue in inside
            for pod in gang.members.values()
            if pod.node and pod.alive
        )

    def reservations(self, names: Sequence[str]) -> list[Reservation]:
        """In the order in which they take capacity."""
        every = {held.gang.qualified_name: held for held in self.scheduler.reservations.values()}
        assert set(names) <= set(every), f"no reservations: {set(names) - set(every)}"
        return [held for name, held in every.items() if name in names]

    def domain(self, node: ClusterNode, level: str) -> tuple[str, ...]:
        """The node's domain of the level; empty: it is in none."""
        columns = self.scheduler.state.snapshot.columns
        for key, value in columns.domains.annotations(columns.row[node.name]):
            if key.rpartition("/")[2] == level:
                return (value,)
        return ()

    def capacity(self, spec: PodSpec, node: ClusterNode, held: Sequence[Reservation]) -> int:
        return max(
            0, min(self.free(node, name, held) // asked for name, asked in spec.requests if asked)
        )

    def free(self, node: ClusterNode, name: str, held: Iterable[Reservation] = ()) -> int:
        """Free on the node now, without what is reserved for others."""
        held = list(held)
        free = node.allocatable().get(name, 0)
        free -= sum(pod.spec.request(name) for pod in node.pods.values() if pod.alive)
        free -= sum(self.reserved(each, node, name)[0] for each in held)
        if name != GPU:
            return free
        return (
            max(free, 0) if node.report is None else min(max(free, 0), len(self.gpus(node, held)))
        )

    def gpus(self, node: ClusterNode, held: Iterable[Reservation] = ()) -> set[int]:
        """The healthy GPUs that nobody has, and none is reserved for these."""
        if node.report is None:
            return set()
        taken = set(indices_of(node.foreign_gpus)) | set(node.foreign_shares)
        for mask in [pod.gpus for pod in node.pods.values()] + [
            self.reserved(each, node, GPU)[1] for each in held
        ]:
            taken |= set(indices_of(mask))
        healthy = {gpu.index for gpu in node.report.topology.gpus if gpu.healthy and not gpu.mig}
        return healthy - taken

    def free_parts(
        self, node: ClusterNode, level: str, held: Iterable[Reservation] = ()
    ) -> list[set[int]]:
        """The free GPUs of each island, NUMA node or PCIe switch."""
        if node.report is None:
            return []
        free, topology = self.gpus(node, held), node.report.topology
        if level == "NUMA node":
            numa = {gpu.index: gpu.numa for gpu in topology.gpus}
            return [{gpu for gpu in free if numa[gpu] == each} for each in set(numa.values())]
        parts = topology.islands if level == "island" else topology.pcie_switches
        return [free & set(part) for part in parts]

    def reserved(self, held: Reservation, node: ClusterNode, name: str) -> tuple[int, int]:
        """The amount and the GPU mask that the reservation keeps free on the node."""
        columns = self.scheduler.state.snapshot.columns
        for index, row in enumerate(held.place.rows.tolist()):
            if columns.names[row] == node.name:
                column, amounts = columns.column[name], held.withheld[index].tolist()
                return sum(amounts[column : column + 1]), held.place.masks[index]
        return 0, 0
