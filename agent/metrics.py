"""Prometheus metrics of the node, collected from the agent's state at each scrape."""

from collections.abc import Iterator, Mapping, Sequence

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
from protos.common.metric_families import counter, gauge
from protos.gpu_sharing import key_of
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of

GPU_LABELS = ("gpu", "uuid")
GRANT_LABELS = ("namespace", "pod", "container")
SLICE_LABELS = ("gpu", "uuid", "slice", "profile")


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
        yield gauge("gpu_info", "1 for each GPU", models, *GPU_LABELS, "model")
        yield gauge(
            "gpu_healthy",
            "1 if the GPU is healthy",
            ((names[gpu.uuid], int(gpu.healthy)) for gpu in gpus),
            *GPU_LABELS,
        )
        unfit = [
            ((*names[gpu.uuid], "held" if health.clear_since is not None else health.cause.kind), 1)
            for gpu in gpus
            if (health := devices.get(gpu.uuid)) and health.cause
        ]
        yield gauge("gpu_unfit", "Unhealthy GPUs by cause", unfit, *GPU_LABELS, "class")
        slow = [
            ((*names[uuid], speed.health.cause.kind), 1)
            for uuid, speed in self._monitor.speeds.items()
            if uuid in names and speed.health.cause
        ]
        yield gauge("gpu_slow", "Slow GPUs by cause", slow, *GPU_LABELS, "class")
        yield gauge(
            "gpu_memory_bytes",
            "Memory of the GPU",
            ((names[gpu.uuid], gpu.memory_bytes) for gpu in gpus),
            *GPU_LABELS,
        )
        back = set(map(device_of, self._node.state.held_back()))
        yield gauge(
            "gpu_held_back",
            "1 if the GPU is held back for a running pod: the kubelet has forgotten it, or another device plugin "
            "allocated it",
            ((names[uuid], 1) for uuid in names if uuid in back),
            *GPU_LABELS,
        )
        missing = int(bool(self._node.state.topology.imex_why))
        about = "1 if the IMEX channel for NVLink between machines is asked for and missing"
        yield gauge("imex_missing", about, missing)
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
            yield gauge(f"gpu_{name}", what, rows, *GPU_LABELS)
        yield counter(
            "gpu_nvlink_errors",
            "Replay, recovery and CRC errors of the GPU's NVLinks",
            ((n, u.link_errors) for n, u in used),
            *GPU_LABELS,
        )

    def _errors(self) -> Iterator[Metric]:
        names = {g.uuid: (str(g.index), g.uuid) for g in self._node.state.topology.gpus}
        facts = [gpu for gpu in self._monitor.facts if gpu.uuid in names]
        yield gauge(
            "gpu_nvlinks_active",
            "Active NVLinks of the GPU",
            ((names[g.uuid], sum(link.active for link in g.nvlinks)) for g in facts if g.nvlinks),
            *GPU_LABELS,
        )
        yield gauge(
            "gpu_ecc_uncorrectable",
            "Uncorrectable ECC errors: volatile (since the last reset) and aggregate",
            (
                ((*names[gpu.uuid], since), count)
                for gpu in facts
                for since, count in (
                    ("volatile", gpu.wear.ecc_volatile),
                    ("aggregate", gpu.wear.ecc_aggregate),
                )
                if count >= 0
            ),
            *GPU_LABELS,
            "since",
        )
        yield gauge(
            "gpu_inforom_corrupted",
            "1 if NVML reports that the GPU's InfoROM is corrupted",
            ((names[gpu.uuid], 1) for gpu in facts if gpu.corrupt),
            *GPU_LABELS,
        )
        yield counter(
            "gpu_xid",
            "XIDs that the driver reported",
            (
                ((*names.get(uuid, ("", uuid)), str(code)), count)
                for (uuid, code), count in list(self._monitor.xids.items())
            ),
            *GPU_LABELS,
            "xid",
        )

    def _grants(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        grants = self._node.state.grants
        yield gauge(
            "grant_devices",
            "Devices of the container",
            (((g.namespace, g.pod, g.container, g.resource), len(g.device_ids)) for g in grants),
            *GRANT_LABELS,
            "resource",
        )
        index = {gpu.uuid: str(gpu.index) for gpu in self._node.state.topology.gpus}
        yield gauge(
            "grant_gpu_memory_used_bytes",
            "Memory in use on a whole GPU of the container",
            (
                ((g.namespace, g.pod, g.container, index[uuid]), usage[uuid].memory_used)
                for g in grants
                if g.resource == GPU
                for uuid in g.device_ids
                if uuid in usage and uuid in index
            ),
            *GRANT_LABELS,
            "gpu",
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
            yield gauge(f"slice_{name}", what, rows, *SLICE_LABELS)
        yield gauge(
            "grant_slice_memory_used_bytes",
            "Memory in use of a slice allocated to a container, in bytes",
            (
                ((*key_of(grant), *names[uuid], slicing.enforcement(names[uuid][3])), used[uuid])
                for grant in state.grants
                if slicing.is_slice(grant.resource)
                for uuid in grant.device_ids
                if uuid in used
            ),
            *GRANT_LABELS,
            *SLICE_LABELS,
            "enforcement",
        )

    def _nics(self) -> Iterator[Metric]:
        hcas = self._node.state.topology.hcas
        yield gauge(
            "hca_up",
            "1 if a port of the RDMA NIC is active",
            (((hca.name,), int(not hca.why)) for hca in hcas),
            "hca",
        )
        yield gauge(
            "hca_rate_gbps",
            "Rate of the RDMA NIC's fastest port",
            (((hca.name,), hca.rate_gbps) for hca in hcas),
            "hca",
        )

        memlock = self._node.state.topology.memlock
        yield gauge(
            "runtime_memlock_bytes",
            "Memlock limit of containers, as inherited from the container runtime",
            (((), float(memlock if memlock > 0 else "inf")),) if memlock else (),
        )
        nics = self._monitor.nics
        yield gauge(
            "hca_falls",
            "Failures of the RDMA NIC that still count for its hold-down",
            (((name,), health.failures) for name, health in list(nics.items())),
            "hca",
        )

    def _rdma(self) -> Iterator[Metric]:
        """Usage and limits from the pods' cgroups; a NIC without a limit has no sample."""
        uses = self._node.state.rdma_use
        labels = ("namespace", "pod", "hca", "kind")
        for name, what, used in (
            ("used", "RDMA resources in use by the pod", [(use, use.current) for use in uses]),
            ("limit", "RDMA limit of the pod", [(use, use.limit) for use in uses]),
        ):
            yield gauge(
                f"grant_rdma_{name}",
                what,
                (
                    ((use.namespace, use.pod, use.card, kind), count if count >= 0 else None)
                    for use, amount in used
                    for kind, count in (
                        ("handles", amount.hca_handle),
                        ("objects", amount.hca_object),
                    )
                ),
                *labels,
            )
        yield counter(
            "grant_rdma_failures",
            "Allocations that the pod's RDMA limits refused, if the kernel reports them",
            (
                ((use.namespace, use.pod, use.card), use.failures if use.failures >= 0 else None)
                for use in uses
            ),
            *labels[:3],
        )

    def _self(self) -> Iterator[Metric]:
        state, events = self._node.state, self._monitor.events
        registered = [(each, (each.resource,)) for each in tuple(self._registrations)]
        yield gauge(
            "agent_registered",
            "1 if the resource is registered with the kubelet",
            ((name, int(each.registered)) for each, name in registered),
            "resource",
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
            yield gauge(f"agent_{key}", what, value)
        if self._reporter:
            reports = {"sent": self._reporter.sent, "failed": self._reporter.failed}
            rows = [((outcome,), count) for outcome, count in reports.items()]
            yield counter("agent_reports", "Reports to the scheduler", rows, "outcome")


def share_families(
    state: NodeState,
    settings: Mapping[tuple[str, ...], ShareSettings],
    used: Mapping[tuple[str, ...], int],
) -> Iterator[Metric]:
    """Shared GPUs, and the containers' shares. settings: of the holders; used: bytes, if the kernel
    counts them; both by share ids."""
    gpus = {gpu.uuid: gpu for gpu in state.topology.gpus if not gpu.mig}
    yield gauge(
        "gpu_shares",
        "Shares of the GPU that are advertised, in hundredths",
        (((str(gpu.index), gpu.uuid, gpu.enforcement), gpu.shares) for gpu in gpus.values()),
        *GPU_LABELS,
        "enforcement",
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
    yield gauge(
        "grant_gpu_hundredths",
        "GPU shares of the container in hundredths, and the enforcement of its memory cap",
        held,
        *GRANT_LABELS,
        "gpu",
        "enforcement",
    )
    yield gauge(
        "grant_gpu_share_memory_used_bytes",
        "Memory in use by the pod on the shared GPU, if the kernel counts it",
        memory,
        *GRANT_LABELS,
        "gpu",
        "enforcement",
    )
