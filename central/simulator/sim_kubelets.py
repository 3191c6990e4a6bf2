"""The simulated nodes: kubelets that allocate GPUs to pods, and agents that report the allocations."""

from collections import Counter
from collections.abc import Iterator, Mapping

from central.model.facts import NodeReported, NodeSeen, PodSeen
from central.model.resources import GPU_UNITS
from central.scheduler.filters import gpu_model
from central.simulator.sim_pod import CURRENCY, SimPod
from protos.closest import closest
from protos.gpu_sharing import SHARE, WHOLE, choose_gpu
from protos.names import GPU, GPU_SHARE
from protos.topology import Grant, NodeTopology, Shape, indices_of, mask_of


class SimKubelets:
    def __init__(self, machines: Mapping[str, NodeTopology]) -> None:
        """machines: the hardware, by node."""
        self._units_there = 0
        self._machines = machines
        self._nodes: dict[str, NodeSeen] = {}
        self._on: dict[str, dict[str, SimPod]] = {}  # running pods by node and uid
        self._taken: dict[str, int] = {}  # mask of exclusively used GPUs, by node
        self._parts: dict[str, Counter[int]] = {}  # used hundredths of shared GPUs, by node
        self._shapes: dict[str, Shape] = {}
        self._changed: dict[str, None] = {}  # nodes whose agents have a report to send
        self._generation = 0

    # --- nodes ------------------------------------------------------------------

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def add(self, seen: NodeSeen) -> None:
        """Adds or changes a node."""
        self.remove(seen.name)
        self._nodes[seen.name] = seen
        self._units_there += CURRENCY.offered(seen.allocatable)
        self._changed[seen.name] = None

    def remove(self, node: str) -> None:
        seen = self._nodes.pop(node, None)
        if seen is not None:
            self._units_there -= CURRENCY.offered(seen.allocatable)

    @property
    def gpus_there(self) -> int:
        return self._units_there // GPU_UNITS

    def gpu_models(self, node: str) -> frozenset[str]:
        """Returns the models of the hardware, else those of the node's labels: uniform machines have GPUs without a
        name."""
        machine = self._machines.get(node)
        if machine is not None and any(gpu.model for gpu in machine.gpus):
            return frozenset(gpu.model for gpu in machine.gpus if gpu.model)
        seen = self._nodes.get(node)
        return frozenset(model for model, _ in gpu_model.known(seen)) if seen else frozenset()

    # --- pods -------------------------------------------------------------------

    def on(self, node: str) -> list[SimPod]:
        return list(self._on.get(node, {}).values())

    def running(self) -> Iterator[SimPod]:
        for on in self._on.values():
            yield from on.values()

    def runs(self, sim_pod: SimPod) -> bool:
        return sim_pod.seen.uid in self._on.get(sim_pod.seen.node, {})

    def start(self, sim_pod: SimPod, planned: int = 0) -> None:
        """planned: the GPUs that the scheduler chose, as a mask."""
        seen = sim_pod.seen
        with_gpus = seen.spec.request(GPU) or seen.spec.request(GPU_SHARE)
        sim_pod.gpus = self._allocate(sim_pod, planned) if with_gpus else 0
        self._on.setdefault(seen.node, {})[seen.uid] = sim_pod

    def stop(self, sim_pod: SimPod) -> None:
        node, share = sim_pod.seen.node, sim_pod.seen.spec.request(GPU_SHARE)
        self._on.get(node, {}).pop(sim_pod.seen.uid, None)
        if not share:
            self._taken[node] = self._taken.get(node, 0) & ~sim_pod.gpus
        elif sim_pod.gpus:
            self._parts[node][sim_pod.gpus.bit_length() - 1] -= share

    def _allocate(self, sim_pod: SimPod, planned: int) -> int:
        """The mask of GPUs that the kubelet allocates: the planned ones, otherwise the closest free ones."""
        node, share = sim_pod.seen.node, sim_pod.seen.spec.request(GPU_SHARE)
        taken, parts = self._taken.get(node, 0), self._parts.setdefault(node, Counter())
        if share:
            given = planned or self._pick_share(node, share, taken)
            gpu = given.bit_length() - 1
            if given & taken or (given and parts[gpu] + share > WHOLE):
                raise AssertionError(f"{node}: GPU {gpu} has less than {share} hundredths left")
            if given:
                parts[gpu] += share
            return given
        taken |= mask_of(gpu for gpu, part in parts.items() if part)
        if planned & taken:
            raise AssertionError(
                f"{node}: GPUs {list(indices_of(planned & taken))} allocated twice"
            )
        given = planned or self._pick(node, sim_pod.seen.spec.request(GPU), taken)
        self._taken[node] = self._taken.get(node, 0) | given
        return given

    def _pick_share(self, node: str, share: int, taken: int) -> int:
        topology = self._machines.get(node)
        if topology is None:
            return 0
        shape = self._shapes.setdefault(node, topology.shape())
        parts = self._parts[node]
        left = {gpu: WHOLE - parts[gpu] for gpu in indices_of(topology.healthy_mask() & ~taken)}
        gpu = choose_gpu(shape, left, share)
        return 1 << gpu if gpu >= 0 else 0

    def _pick(self, node: str, wanted: int, taken: int) -> int:
        topology = self._machines.get(node)
        if topology is not None:
            shape = self._shapes.setdefault(node, topology.shape())
            return closest(shape, topology.healthy_mask() & ~taken, wanted)
        seen = self._nodes.get(node)
        there = seen.allocatable.get(GPU, 0) if seen else 0
        free = [index for index in range(there) if not taken >> index & 1][:wanted]
        return sum(1 << index for index in free) if len(free) == wanted else 0

    # --- agents -----------------------------------------------------------------

    def mark_changed(self, node: str) -> None:
        """A pod with GPUs runs on the node that the scheduler did not bind."""
        self._changed[node] = None

    def reports(self) -> Iterator[NodeReported]:
        """Hardware and allocations of the nodes that changed."""
        for node in self._changed:
            topology = self._machines.get(node)
            if topology is None or node not in self._nodes:
                continue
            self._generation += 1
            grants = tuple(
                _grant(
                    sim_pod.seen, tuple(topology.gpus[gpu].uuid for gpu in indices_of(sim_pod.gpus))
                )
                for sim_pod in self.on(node)
                if sim_pod.gpus
                and (sim_pod.seen.spec.gpu_containers or sim_pod.seen.spec.share_containers)
            )
            yield NodeReported(node, "boot", self._generation, topology, grants)
        self._changed.clear()


def _grant(seen: PodSeen, uuids: tuple[str, ...]) -> Grant:
    if share := seen.spec.request(GPU_SHARE):
        container = seen.spec.share_containers[0][0]
        limits = ((SHARE, share),)
        return Grant(seen.namespace, seen.name, container, GPU_SHARE, uuids, limits)
    return Grant(seen.namespace, seen.name, seen.spec.gpu_containers[0][0], GPU, uuids)
