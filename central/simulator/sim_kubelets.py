"""The simulated nodes: kubelets that hand out GPUs, and agents that report who holds which."""

from collections import Counter
from collections.abc import Iterator, Mapping

from central.model.facts import NodeReported, NodeSeen, PodSeen
from central.simulator.sim_pod import SimPod, gpus_of
from protos.closest import closest
from protos.gpu_sharing import SHARE, WHOLE, choose_gpu
from protos.names import GPU, GPU_SHARE
from protos.topology import Grant, NodeTopology, Shape, indices_of, mask_of


class SimKubelets:
    def __init__(self, machines: Mapping[str, NodeTopology]) -> None:
        """machines: the hardware, by node."""
        self.gpus_there = 0
        self._machines = machines
        self._nodes: dict[str, NodeSeen] = {}
        self._on: dict[str, dict[str, SimPod]] = {}  # by node and uid: those that run
        self._taken: dict[str, int] = {}  # GPUs in use as a whole, by node
        self._parts: dict[str, Counter[int]] = {}  # hundredths of the others in use, by node
        self._shapes: dict[str, Shape] = {}
        self._changed: dict[str, None] = {}  # nodes whose agents have something to tell
        self._generation = 0

    # --- nodes ------------------------------------------------------------------

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def come(self, seen: NodeSeen) -> None:
        """A node; or the same again, changed."""
        self.go(seen.name)
        self._nodes[seen.name] = seen
        self.gpus_there += seen.allocatable.get(GPU, 0)
        self._changed[seen.name] = None

    def go(self, node: str) -> None:
        seen = self._nodes.pop(node, None)
        if seen is not None:
            self.gpus_there -= seen.allocatable.get(GPU, 0)

    # --- pods -------------------------------------------------------------------

    def on(self, node: str) -> list[SimPod]:
        return list(self._on.get(node, {}).values())

    def running(self) -> Iterator[SimPod]:
        for on in self._on.values():
            yield from on.values()

    def runs(self, live: SimPod) -> bool:
        return live.seen.uid in self._on.get(live.seen.node, {})

    def start(self, live: SimPod, planned: int = 0) -> None:
        """planned: the GPUs that the scheduler chose, as a mask."""
        seen = live.seen
        live.gpus = self._give(live, planned) if gpus_of(seen) else 0
        self._on.setdefault(seen.node, {})[seen.uid] = live

    def stop(self, live: SimPod) -> None:
        node, share = live.seen.node, live.seen.spec.request(GPU_SHARE)
        self._on.get(node, {}).pop(live.seen.uid, None)
        if not share:
            self._taken[node] = self._taken.get(node, 0) & ~live.gpus
        elif live.gpus:
            self._parts[node][live.gpus.bit_length() - 1] -= share

    def _give(self, live: SimPod, planned: int) -> int:
        """The GPUs that the kubelet hands out: the planned ones, else the closest that are free."""
        node, share = live.seen.node, live.seen.spec.request(GPU_SHARE)
        taken, parts = self._taken.get(node, 0), self._parts.setdefault(node, Counter())
        if share:
            given = planned or self._open(node, share, taken)
            gpu = given.bit_length() - 1
            if given & taken or (given and parts[gpu] + share > WHOLE):
                raise AssertionError(f"{node}: GPU {gpu} has not {share} hundredths left")
            if given:
                parts[gpu] += share
            return given
        taken |= mask_of(gpu for gpu, part in parts.items() if part)
        if planned & taken:
            raise AssertionError(f"{node}: GPUs {list(indices_of(planned & taken))} given twice")
        given = planned or self._pick(node, live.seen.spec.request(GPU), taken)
        self._taken[node] = self._taken.get(node, 0) | given
        return given

    def _open(self, node: str, share: int, taken: int) -> int:
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

    def notice(self, node: str) -> None:
        """Others than the scheduler put a pod with GPUs there."""
        self._changed[node] = None

    def reports(self) -> Iterator[NodeReported]:
        """The hardware, and who holds what, of the nodes where there is something to tell."""
        for node in self._changed:
            topology = self._machines.get(node)
            if topology is None or node not in self._nodes:
                continue
            self._generation += 1
            grants = tuple(
                _grant(live.seen, tuple(topology.gpus[gpu].uuid for gpu in indices_of(live.gpus)))
                for live in self.on(node)
                if live.gpus and (live.seen.spec.gpu_containers or live.seen.spec.share_containers)
            )
            yield NodeReported(node, "boot", self._generation, topology, grants)
        self._changed.clear()


def _grant(seen: PodSeen, uuids: tuple[str, ...]) -> Grant:
    if share := seen.spec.request(GPU_SHARE):
        container = seen.spec.share_containers[0][0]
        limits = ((SHARE, share),)
        return Grant(seen.namespace, seen.name, container, GPU_SHARE, uuids, limits)
    return Grant(seen.namespace, seen.name, seen.spec.gpu_containers[0][0], GPU, uuids)
