"""Prometheus metrics of the node, collected from the agent's state at each scrape."""

from collections.abc import Iterable, Iterator, Sequence

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
from agent.mig import slice_metrics
from agent.node import AgentNode
from agent.nvml.usage import Usage
from agent.reporter import Reporter
from agent.sharing import share_metrics as shares
from protos.names import GPU

GPU_LABELS = ("gpu", "uuid")
GRANT_LABELS = ("namespace", "pod", "container")
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
        yield from slice_metrics.families(self._node.state, usage)
        sharing = self._monitor.sharing
        yield from shares.families(self._node.state, sharing.settings(), sharing.used)
        yield from self._nics()
        yield from self._rdma()
        yield from self._self()

    def _gpus(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        gpus = self._node.state.topology.gpus
        names = {gpu.uuid: (str(gpu.index), gpu.uuid) for gpu in gpus}
        devices = self._monitor.gpus
        info = GaugeMetricFamily(
            "lockstep_gpu_info", "1 for each GPU", labels=(*GPU_LABELS, "model")
        )
        for gpu in gpus:
            info.add_metric((*names[gpu.uuid], gpu.model), 1)
        yield info
        yield _gauge(
            "lockstep_gpu_healthy",
            "1 if the GPU is healthy",
            GPU_LABELS,
            ((names[gpu.uuid], int(gpu.healthy)) for gpu in gpus),
        )
        unfit = GaugeMetricFamily(
            "lockstep_gpu_unfit", "Unhealthy GPUs by cause", labels=(*GPU_LABELS, "class")
        )
        for gpu in gpus:
            health = devices.get(gpu.uuid)
            if health is not None and health.cause is not None:
                held = "held" if health.clear_since is not None else health.cause.kind
                unfit.add_metric((*names[gpu.uuid], held), 1)
        yield unfit
        yield _gauge(
            "lockstep_gpu_memory_bytes",
            "Memory of the GPU",
            GPU_LABELS,
            ((names[gpu.uuid], gpu.memory_bytes) for gpu in gpus),
        )
        used = [(names[uuid], each) for uuid, each in usage.items() if uuid in names]
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
        ecc = GaugeMetricFamily(
            "lockstep_gpu_ecc_uncorrectable",
            "Uncorrectable ECC errors: volatile (since the last reset) and aggregate",
            labels=(*GPU_LABELS, "since"),
        )
        for gpu in facts:
            for since, count in (
                ("volatile", gpu.wear.ecc_volatile),
                ("aggregate", gpu.wear.ecc_aggregate),
            ):
                if count >= 0:
                    ecc.add_metric((*names[gpu.uuid], since), count)
        yield ecc
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


def _gauge(name: str, what: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _counter(name: str, what: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family
