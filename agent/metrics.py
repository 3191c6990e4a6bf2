"""Prometheus metrics of the node, collected from the agent's state at each scrape."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.device_monitor import DeviceMonitor
from agent.kubelet.registration import PluginRegistration
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml.usage import Usage
from agent.reporter import Reporter
from agent.sharing.responses import ShareSettings
from protos import slicing
from protos.common.metric_families import Rows, counter, gauge
from protos.gpu_sharing import key_of
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of

GPU_LABELS = ("gpu", "uuid")
GRANT_LABELS = ("namespace", "pod", "container")
SLICE_LABELS = ("gpu", "uuid", "slice", "profile")
GAUGES = {  # by name: what it says, and its labels
    "gpu_info": ("1 for each GPU", (*GPU_LABELS, "model")),
    "gpu_healthy": ("1 if the GPU is healthy", GPU_LABELS),
    "gpu_unfit": ("Unhealthy GPUs by cause", (*GPU_LABELS, "class")),
    "gpu_slow": ("Slow GPUs by cause", (*GPU_LABELS, "class")),
    "gpu_memory_bytes": ("Memory of the GPU", GPU_LABELS),
    "gpu_held_back": (
        "1 if the GPU is held back for a running pod: the kubelet has forgotten it, or another device plugin "
        "allocated it",
        GPU_LABELS,
    ),
    "imex_missing": (
        "1 if the IMEX channel for NVLink between machines is asked for and missing",
        (),
    ),
    "gpu_memory_used_bytes": ("Memory in use", GPU_LABELS),
    "gpu_utilization_ratio": ("Share of time in which a kernel ran", GPU_LABELS),
    "gpu_temperature_celsius": ("Temperature", GPU_LABELS),
    "gpu_power_watts": ("Power drawn", GPU_LABELS),
    "gpu_nvlinks_active": ("Active NVLinks of the GPU", GPU_LABELS),
    "gpu_ecc_uncorrectable": (
        "Uncorrectable ECC errors: volatile (since the last reset) and aggregate",
        (*GPU_LABELS, "since"),
    ),
    "gpu_inforom_corrupted": ("1 if NVML reports that the GPU's InfoROM is corrupted", GPU_LABELS),
    "grant_devices": ("Devices of the container", (*GRANT_LABELS, "resource")),
    "grant_gpu_memory_used_bytes": (
        "Memory in use on a whole GPU of the container",
        (*GRANT_LABELS, "gpu"),
    ),
    "slice_healthy": ("1 if the slice is healthy", SLICE_LABELS),
    "slice_memory_bytes": ("Memory of the slice in bytes", SLICE_LABELS),
    "slice_memory_used_bytes": ("Memory in use in bytes", SLICE_LABELS),
    "grant_slice_memory_used_bytes": (
        "Memory in use of a slice allocated to a container, in bytes",
        (*GRANT_LABELS, *SLICE_LABELS, "enforcement"),
    ),
    "gpu_shares": (
        "Shares of the GPU that are advertised, in hundredths",
        (*GPU_LABELS, "enforcement"),
    ),
    "grant_gpu_hundredths": (
        "GPU shares of the container in hundredths, and the enforcement of its memory cap",
        (*GRANT_LABELS, "gpu", "enforcement"),
    ),
    "grant_gpu_share_memory_used_bytes": (
        "Memory in use by the pod on the shared GPU, if the kernel counts it",
        (*GRANT_LABELS, "gpu", "enforcement"),
    ),
    "hca_up": ("1 if a port of the RDMA NIC is active", ("hca",)),
    "hca_rate_gbps": ("Rate of the RDMA NIC's fastest port", ("hca",)),
    "runtime_memlock_bytes": (
        "Memlock limit of containers, as inherited from the container runtime",
        (),
    ),
    "hca_falls": ("Failures of the RDMA NIC that still count for its hold-down", ("hca",)),
    "grant_rdma_used": ("RDMA resources in use by the pod", ("namespace", "pod", "hca", "kind")),
    "grant_rdma_limit": ("RDMA limit of the pod", ("namespace", "pod", "hca", "kind")),
    "agent_registered": ("1 if the resource is registered with the kubelet", ("resource",)),
    "agent_intents": ("Planned allocations received from the scheduler", ()),
    "agent_generation": ("Generation of the node's state", ()),
    "agent_event_gpus": ("GPUs whose driver events the agent receives", ()),
}
COUNTERS = {
    "gpu_nvlink_errors": ("Replay, recovery and CRC errors of the GPU's NVLinks", GPU_LABELS),
    "gpu_xid": ("XIDs that the driver reported", (*GPU_LABELS, "xid")),
    "grant_rdma_failures": (
        "Allocations that the pod's RDMA limits refused, if the kernel reports them",
        ("namespace", "pod", "hca"),
    ),
    "agent_reports": ("Reports to the scheduler", ("outcome",)),
}
Family = tuple[str, Rows]  # of GAUGES or COUNTERS


def families(found: Iterable[Family]) -> Iterator[Metric]:
    for name, rows in found:
        make, (about, labels) = (
            (gauge, GAUGES[name]) if name in GAUGES else (counter, COUNTERS[name])
        )
        yield make(name, about, rows, *labels)


def registry(collector: "Metrics") -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(collector)
    ProcessCollector(registry=made)
    return made


class Metrics(Collector):
    def __init__(
        self,
        node: AgentNode,
        monitor: DeviceMonitor,
        registrations: Sequence[PluginRegistration],
        reporter: Reporter | None,
    ) -> None:
        self._node, self._monitor = node, monitor
        self._registrations, self._reporter = registrations, reporter

    def collect(self) -> Iterator[Metric]:
        usage = {each.uuid: each for each in self._monitor.usage()}
        yield from families(self._gpus(usage))
        yield from families(self._errors())
        yield from families(self._grants(usage))
        yield from families(self._slices(usage))
        sharing = self._monitor.sharing
        yield from families(share_families(self._node.state, sharing.settings(), sharing.used))
        yield from families(self._nics())
        yield from families(self._rdma())
        yield self._allocations()
        yield from families(self._self())

    def _gpus(self, usage: dict[str, Usage]) -> Iterator[Family]:
        gpus = self._node.state.topology.gpus
        names = {gpu.uuid: (str(gpu.index), gpu.uuid) for gpu in gpus}
        devices, topology = self._monitor.gpus, self._node.state.topology
        yield "gpu_info", (((*names[gpu.uuid], gpu.model), 1) for gpu in gpus)
        yield "gpu_healthy", ((names[gpu.uuid], int(gpu.healthy)) for gpu in gpus)
        yield (
            "gpu_unfit",
            [
                ((*names[uuid], "held" if health.clear_since is not None else health.cause.kind), 1)
                for uuid in names
                if (health := devices.get(uuid)) and health.cause
            ],
        )
        yield (
            "gpu_slow",
            [
                ((*names[uuid], speed.health.cause.kind), 1)
                for uuid, speed in self._monitor.speeds.items()
                if uuid in names and speed.health.cause
            ],
        )
        yield "gpu_memory_bytes", ((names[gpu.uuid], gpu.memory_bytes) for gpu in gpus)
        back = set(map(device_of, self._node.state.held_back()))
        yield "gpu_held_back", ((names[uuid], 1) for uuid in names if uuid in back)
        yield "imex_missing", int(bool(topology.imex_why))
        used = [(names[uuid], each) for uuid, each in usage.items() if uuid in names]
        yield "gpu_memory_used_bytes", [(name, each.memory_used) for name, each in used]
        yield "gpu_utilization_ratio", [(name, each.utilization) for name, each in used]
        yield "gpu_temperature_celsius", [(name, each.celsius) for name, each in used]
        yield "gpu_power_watts", [(name, each.watts) for name, each in used]
        yield "gpu_nvlink_errors", [(name, each.link_errors) for name, each in used]

    def _errors(self) -> Iterator[Family]:
        names = {g.uuid: (str(g.index), g.uuid) for g in self._node.state.topology.gpus}
        facts = [(names[gpu.uuid], gpu) for gpu in self._monitor.facts if gpu.uuid in names]
        links = [(name, gpu.nvlinks) for name, gpu in facts if gpu.nvlinks]
        yield "gpu_nvlinks_active", [(name, sum(link.active for link in of)) for name, of in links]
        counts = [
            ((*name, since), count)
            for name, gpu in facts
            for since, count in (
                ("volatile", gpu.wear.ecc_volatile),
                ("aggregate", gpu.wear.ecc_aggregate),
            )
        ]
        yield "gpu_ecc_uncorrectable", [(name, count) for name, count in counts if count >= 0]
        yield "gpu_inforom_corrupted", ((name, 1) for name, gpu in facts if gpu.corrupt)
        xids = list(self._monitor.xids.items())
        yield (
            "gpu_xid",
            (((*names.get(uuid, ("", uuid)), str(code)), count) for (uuid, code), count in xids),
        )

    def _grants(self, usage: dict[str, Usage]) -> Iterator[Family]:
        grants = self._node.state.grants
        yield "grant_devices", (((*key_of(g), g.resource), len(g.device_ids)) for g in grants)
        index = {gpu.uuid: str(gpu.index) for gpu in self._node.state.topology.gpus}
        yield (
            "grant_gpu_memory_used_bytes",
            (
                ((*key_of(g), index[uuid]), usage[uuid].memory_used)
                for g in grants
                if g.resource == GPU
                for uuid in g.device_ids
                if uuid in usage and uuid in index
            ),
        )

    def _slices(self, usage: Mapping[str, Usage]) -> Iterator[Family]:
        """MIG slices, and their use by containers. usage: of GPUs and slices, by uuid."""
        state = self._node.state
        parts = {part.uuid: (gpu, part) for gpu, part in slicing.of(state.topology)}
        if not parts:
            return
        names = {u: (str(gpu.index), gpu.uuid, u, part.profile) for u, (gpu, part) in parts.items()}
        used = {uuid: each.memory_used for uuid, each in usage.items() if uuid in parts}
        yield "slice_healthy", [(names[u], int(part.healthy)) for u, (_, part) in parts.items()]
        yield (
            "slice_memory_bytes",
            [(names[u], part.memory_bytes) for u, (_, part) in parts.items()],
        )
        yield "slice_memory_used_bytes", [(names[uuid], amount) for uuid, amount in used.items()]
        yield (
            "grant_slice_memory_used_bytes",
            (
                ((*key_of(grant), *names[uuid], slicing.enforcement(names[uuid][3])), used[uuid])
                for grant in state.grants
                if slicing.is_slice(grant.resource)
                for uuid in grant.device_ids
                if uuid in used
            ),
        )

    def _nics(self) -> Iterator[Family]:
        hcas = self._node.state.topology.hcas
        yield "hca_up", ((hca.name, int(not hca.why)) for hca in hcas)
        yield "hca_rate_gbps", ((hca.name, hca.rate_gbps) for hca in hcas)
        memlock = self._node.state.topology.memlock
        limit = [((), float(memlock if memlock > 0 else "inf"))] if memlock else []
        yield "runtime_memlock_bytes", limit
        nics = list(self._monitor.nics.items())
        yield "hca_falls", ((name, health.failures) for name, health in nics)

    def _rdma(self) -> Iterator[Family]:
        """Usage and limits from the pods' cgroups; a NIC without a limit has no sample."""
        uses = [((u.namespace, u.pod, u.card), u) for u in self._node.state.rdma_use]
        for name, amounts in (
            ("used", [(of, use.current) for of, use in uses]),
            ("limit", [(of, use.limit) for of, use in uses]),
        ):
            yield (
                f"grant_rdma_{name}",
                (
                    ((*of, kind), count if count >= 0 else None)
                    for of, amount in amounts
                    for kind, count in (
                        ("handles", amount.hca_handle),
                        ("objects", amount.hca_object),
                    )
                ),
            )
        failures = [(of, use.failures) for of, use in uses]
        yield "grant_rdma_failures", ((of, count if count >= 0 else None) for of, count in failures)

    def _allocations(self) -> Metric:
        took = HistogramMetricFamily(
            "lockstep_agent_allocate_seconds", "Duration of Allocate calls", labels=("resource",)
        )
        for each in tuple(self._registrations):
            took.add_metric((each.resource,), each.took.buckets(), each.took.total_s)
        return took

    def _self(self) -> Iterator[Family]:
        state, events = self._node.state, self._monitor.events
        registered = tuple(self._registrations)
        yield "agent_registered", ((each.resource, int(each.registered)) for each in registered)
        yield "agent_intents", len(state.intents)
        yield "agent_generation", state.generation
        yield "agent_event_gpus", events.listening if events else 0
        if self._reporter:
            reports = {"sent": self._reporter.sent, "failed": self._reporter.failed}
            yield "agent_reports", reports.items()


def share_families(
    state: NodeState,
    settings: Mapping[tuple[str, ...], ShareSettings],
    used: Mapping[tuple[str, ...], int],
) -> Iterator[Family]:
    """Shared GPUs, and the containers' shares. settings: of the holders; used: bytes, if the kernel
    counts them; both by share ids."""
    gpus = {gpu.uuid: gpu for gpu in state.topology.gpus if not gpu.mig}
    yield (
        "gpu_shares",
        (((str(gpu.index), gpu.uuid, gpu.enforcement), gpu.shares) for gpu in gpus.values()),
    )
    held: list[tuple[tuple[str, ...], float]] = []
    memory: list[tuple[tuple[str, ...], float]] = []
    for grant in state.grants:
        ids = grant.device_ids
        if grant.resource == GPU:
            whole = [str(gpus[uuid].index) for uuid in ids if uuid in gpus]
            held += [((*key_of(grant), index, "whole"), 100) for index in whole]
        elif grant.resource == GPU_SHARE and (gpu := gpus.get(device_of(ids[0]))):
            level = settings[ids].level if ids in settings else ""
            labels = (*key_of(grant), str(gpu.index), level or "unknown")
            held.append((labels, len(ids)))
            memory += [(labels, used[ids])] if ids in used else []
    yield "grant_gpu_hundredths", held
    yield "grant_gpu_share_memory_used_bytes", memory
