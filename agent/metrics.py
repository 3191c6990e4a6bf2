"""Prometheus metrics of the node, collected from the agent's state at each scrape."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from agent.device_monitor import DeviceMonitor
from agent.kubelet.registration import PluginRegistration
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml.usage import Usage
from agent.reporter import Reporter
from agent.sharing.responses import ShareSettings
from protos import slicing
from protos.gpu_sharing import key_of
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of

GPU_LABELS = ("gpu", "uuid")
GRANT_LABELS = ("namespace", "pod", "container")
SLICE_LABELS = ("gpu", "uuid", "slice", "profile")
Rows = Iterable[tuple[Sequence[str], float | int | None]]


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
        yield from self._gpus(usage)
        yield from self._errors()
        yield from self._grants(usage)
        yield from self._slices(usage)
        sharing = self._monitor.sharing
        yield from share_families(self._node.state, sharing.settings(), sharing.used)
        yield from self._nics()
        yield from self._rdma()
        yield from self._self()

    def _gpus(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        gpus = self._node.state.topology.gpus
        names = {gpu.uuid: (str(gpu.index), gpu.uuid) for gpu in gpus}
        devices = self._monitor.gpus
        models = (((*names[gpu.uuid], gpu.model), 1) for gpu in gpus)
        yield _gauge("lockstep_gpu_info", "1 for each GPU", (*GPU_LABELS, "model"), models)
        yield _gauge(
            "lockstep_gpu_healthy",
            "1 if the GPU is healthy",
            GPU_LABELS,
            ((names[gpu.uuid], int(gpu.healthy)) for gpu in gpus),
        )
        unfit = [
            ((*names[gpu.uuid], "held" if health.clear_since is not None else health.cause.kind), 1)
            for gpu in gpus
            if (health := devices.get(gpu.uuid)) and health.cause
        ]
        yield _gauge("lockstep_gpu_unfit", "Unhealthy GPUs by cause", (*GPU_LABELS, "class"), unfit)
        slow = [
            ((*names[uuid], speed.health.cause.kind), 1)
            for uuid, speed in self._monitor.speeds.items()
            if uuid in names and speed.health.cause
        ]
        yield _gauge("lockstep_gpu_slow", "Slow GPUs by cause", (*GPU_LABELS, "class"), slow)
        yield _gauge(
            "lockstep_gpu_memory_bytes",
            "Memory of the GPU",
            GPU_LABELS,
            ((names[gpu.uuid], gpu.memory_bytes) for gpu in gpus),
        )
        back = set(map(device_of, self._node.state.held_back()))
        yield _gauge(
            "lockstep_gpu_held_back",
            "1 if the GPU is held back for a running pod: the kubelet has forgotten it, or another device plugin allocated it",
            GPU_LABELS,
            ((names[uuid], 1) for uuid in names if uuid in back),
        )
        yield from self._usage(
            [(names[uuid], each) for uuid, each in usage.items() if uuid in names]
        )

    def _usage(self, used: Sequence[tuple[tuple[str, str], Usage]]) -> Iterator[Metric]:
        """used: by index and UUID of the GPU."""
        for name, what, rows in (
            ("memory_used_bytes", "Memory in use", [(n, u.memory_used) for n, u in used]),
            (
                "utilization_ratio",
                "Share of time in which a kernel ran",
                [(n, u.utilization) for n, u in used],
            ),
            ("temperature_celsius", "Temperature", [(n, u.celsius) for n, u in used]),
            ("power_watts", "Power drawn", [(n, u.watts) for n, u in used]),
        ):
            yield _gauge(f"lockstep_gpu_{name}", what, GPU_LABELS, rows)
        yield _counter(
            "lockstep_gpu_nvlink_errors",
            "Replay, recovery and CRC errors of the GPU's NVLinks",
            GPU_LABELS,
            ((n, u.link_errors) for n, u in used),
        )

    def _errors(self) -> Iterator[Metric]:
        names = {g.uuid: (str(g.index), g.uuid) for g in self._node.state.topology.gpus}
        facts = [gpu for gpu in self._monitor.facts if gpu.uuid in names]
        yield _gauge(
            "lockstep_gpu_nvlinks_active",
            "Active NVLinks of the GPU",
            GPU_LABELS,
            ((names[g.uuid], sum(link.active for link in g.nvlinks)) for g in facts if g.nvlinks),
        )
        yield _gauge(
            "lockstep_gpu_ecc_uncorrectable",
            "Uncorrectable ECC errors: volatile (since the last reset) and aggregate",
            (*GPU_LABELS, "since"),
            (
                ((*names[gpu.uuid], since), count)
                for gpu in facts
                for since, count in (
                    ("volatile", gpu.wear.ecc_volatile),
                    ("aggregate", gpu.wear.ecc_aggregate),
                )
                if count >= 0
            ),
        )
        yield _gauge(
            "lockstep_gpu_inforom_corrupted",
            "1 if NVML reports that the GPU's InfoROM is corrupted",
            GPU_LABELS,
            ((names[gpu.uuid], 1) for gpu in facts if gpu.corrupt),
        )
        yield _counter(
            "lockstep_gpu_xid",
            "XIDs that the driver reported",
            (*GPU_LABELS, "xid"),
            (
                ((*names.get(uuid, ("", uuid)), str(code)), count)
                for (uuid, code), count in list(self._monitor.xids.items())
            ),
        )

    def _grants(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        grants = self._node.state.grants
        yield _gauge(
            "lockstep_grant_devices",
            "Devices of the container",
            (*GRANT_LABELS, "resource"),
            (((g.namespace, g.pod, g.container, g.resource), len(g.device_ids)) for g in grants),
        )
        index = {gpu.uuid: str(gpu.index) for gpu in self._node.state.topology.gpus}
        yield _gauge(
            "lockstep_grant_gpu_memory_used_bytes",
            "Memory in use on a whole GPU of the container",
            (*GRANT_LABELS, "gpu"),
            (
                ((g.namespace, g.pod, g.container, index[uuid]), usage[uuid].memory_used)
                for g in grants
                if g.resource == GPU
                for uuid in g.device_ids
                if uuid in usage and uuid in index
            ),
        )

    def _slices(self, usage: Mapping[str, Usage]) -> Iterator[Metric]:
        """MIG slices, and their use by containers. usage: of GPUs and slices, by uuid."""
        state = self._node.state
        parts = {part.uuid: (gpu, part) for gpu, part in slicing.of(state.topology)}
        if not parts:
            return
        names = {u: (str(gpu.index), gpu.uuid, u, part.profile) for u, (gpu, part) in parts.items()}
        used = {uuid: each.memory_used for uuid, each in usage.items() if uuid in parts}
        sizes = {uuid: part.memory_bytes for uuid, (_, part) in parts.items()}
        healthy = {uuid: int(part.healthy) for uuid, (_, part) in parts.items()}
        for name, what, values in (
            ("healthy", "1 if the slice is healthy", healthy),
            ("memory_bytes", "Memory of the slice in bytes", sizes),
            ("memory_used_bytes", "Memory in use in bytes", used),
        ):
            rows = [(names[uuid], value) for uuid, value in values.items()]
            yield _gauge(f"lockstep_slice_{name}", what, SLICE_LABELS, rows)
        yield _gauge(
            "lockstep_grant_slice_memory_used_bytes",
            "Memory in use of a slice allocated to a container, in bytes",
            (*GRANT_LABELS, *SLICE_LABELS, "enforcement"),
            (
                ((*key_of(grant), *names[uuid], slicing.enforcement(names[uuid][3])), used[uuid])
                for grant in state.grants
                if slicing.is_slice(grant.resource)
                for uuid in grant.device_ids
                if uuid in used
            ),
        )

    def _nics(self) -> Iterator[Metric]:
        hcas = self._node.state.topology.hcas
        yield _gauge(
            "lockstep_hca_up",
            "1 if a port of the RDMA NIC is active",
            ("hca",),
            (((hca.name,), int(not hca.why)) for hca in hcas),
        )
        yield _gauge(
            "lockstep_hca_rate_gbps",
            "Rate of the RDMA NIC's fastest port",
            ("hca",),
            (((hca.name,), hca.rate_gbps) for hca in hcas),
        )

        memlock = self._node.state.topology.memlock
        yield _gauge(
            "lockstep_runtime_memlock_bytes",
            "Memlock limit of containers, as inherited from the container runtime",
            (),
            (((), float(memlock if memlock > 0 else "inf")),) if memlock else (),
        )
        nics = self._monitor.nics
        yield _gauge(
            "lockstep_hca_falls",
            "Failures of the RDMA NIC that still count for its hold-down",
            ("hca",),
            (((name,), health.failures) for name, health in list(nics.items())),
        )

    def _rdma(self) -> Iterator[Metric]:
        """Usage and limits from the pods' cgroups; a NIC without a limit has no sample."""
        uses = self._node.state.rdma_use
        labels = ("namespace", "pod", "hca", "kind")
        for name, what, used in (
            ("used", "RDMA resources in use by the pod", [(use, use.current) for use in uses]),
            ("limit", "RDMA limit of the pod", [(use, use.limit) for use in uses]),
        ):
            yield _gauge(
                f"lockstep_grant_rdma_{name}",
                what,
                labels,
                (
                    ((use.namespace, use.pod, use.card, kind), count if count >= 0 else None)
                    for use, amount in used
                    for kind, count in (
                        ("handles", amount.hca_handle),
                        ("objects", amount.hca_object),
                    )
                ),
            )
        yield _counter(
            "lockstep_grant_rdma_failures",
            "Allocations that the pod's RDMA limits refused, if the kernel reports them",
            labels[:3],
            (
                ((use.namespace, use.pod, use.card), use.failures if use.failures >= 0 else None)
                for use in uses
            ),
        )

    def _self(self) -> Iterator[Metric]:
        state, events = self._node.state, self._monitor.events
        registered = [(each, (each.resource,)) for each in tuple(self._registrations)]
        yield _gauge(
            "lockstep_agent_registered",
            "1 if the resource is registered with the kubelet",
            ("resource",),
            ((name, int(each.registered)) for each, name in registered),
        )
        took = HistogramMetricFamily(
            "lockstep_agent_allocate_seconds", "Duration of Allocate calls", labels=("resource",)
        )
        for each, name in registered:
            took.add_metric(name, each.took.buckets(), each.took.total_s)
        yield took
        plain = {
            "intents": ("Planned allocations received from the scheduler", len(state.intents)),
            "generation": ("Generation of the node's state", state.generation),
            "event_gpus": (
                "GPUs whose driver events the agent receives",
                events.listening if events else 0,
            ),
        }
        for key, (what, value) in plain.items():
            yield GaugeMetricFamily(f"lockstep_agent_{key}", what, value)
        if self._reporter:
            reports = {"sent": self._reporter.sent, "failed": self._reporter.failed}
            rows = [((outcome,), count) for outcome, count in reports.items()]
            yield _counter("lockstep_agent_reports", "Reports to the scheduler", ("outcome",), rows)


def share_families(
    state: NodeState,
    settings: Mapping[tuple[str, ...], ShareSettings],
    used: Mapping[tuple[str, ...], int],
) -> Iterator[Metric]:
    """Shared GPUs, and the containers' shares. settings: of the holders; used: bytes, if the kernel
    counts them; both by share ids."""
    gpus = {gpu.uuid: gpu for gpu in state.topology.gpus if not gpu.mig}
    yield _gauge(
        "lockstep_gpu_shares",
        "Shares of the GPU that are advertised, in hundredths",
        (*GPU_LABELS, "enforcement"),
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
    yield _gauge(
        "lockstep_grant_gpu_hundredths",
        "GPU shares of the container in hundredths, and the enforcement of its memory cap",
        (*GRANT_LABELS, "gpu", "enforcement"),
        held,
    )
    yield _gauge(
        "lockstep_grant_gpu_share_memory_used_bytes",
        "Memory in use by the pod on the shared GPU, if the kernel counts it",
        (*GRANT_LABELS, "gpu", "enforcement"),
        memory,
    )


def _gauge(name: str, what: str, labels: Sequence[str], rows: Rows) -> Metric:
    return _filled(GaugeMetricFamily(name, what, labels=labels), rows)


def _counter(name: str, what: str, labels: Sequence[str], rows: Rows) -> Metric:
    return _filled(CounterMetricFamily(name, what, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family
