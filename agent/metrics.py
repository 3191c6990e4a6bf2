"""The node in Prometheus' words. Everything is counted or read elsewhere; here it is only named, at the
moment somebody asks."""

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
        hardware: DeviceMonitor,
        kubelets: Sequence[PluginRegistration],
        reporter: Reporter | None,
    ) -> None:
        self._node, self._hardware = node, hardware
        self._kubelets, self._reporter = kubelets, reporter

    def collect(self) -> Iterator[Metric]:
        usage = {each.uuid: each for each in self._hardware.usage()}
        yield from self._gpus(usage)
        yield from self._errors()
        yield from self._grants(usage)
        yield from slice_metrics.families(self._node.state, usage)
        sharing = self._hardware.sharing
        yield from shares.families(self._node.state, sharing.settings(), sharing.used)
        yield from self._cards()
        yield from self._rdma()
        yield from self._self()

    def _gpus(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        gpus = self._node.state.topology.gpus
        names = {gpu.uuid: (str(gpu.index), gpu.uuid) for gpu in gpus}
        devices = self._hardware.gpus
        info = GaugeMetricFamily("lockstep_gpu_info", "A GPU", labels=(*GPU_LABELS, "model"))
        for gpu in gpus:
            info.add_metric((*names[gpu.uuid], gpu.model), 1)
        yield info
        yield _gauge(
            "lockstep_gpu_healthy",
            "1: fit for work",
            GPU_LABELS,
            ((names[gpu.uuid], int(gpu.healthy)) for gpu in gpus),
        )
        unfit = GaugeMetricFamily(
            "lockstep_gpu_unfit", "What speaks against it", labels=(*GPU_LABELS, "class")
        )
        for gpu in gpus:
            health = devices.get(gpu.uuid)
            if health is not None and health.cause is not None:
                held = "held" if health.clear_since is not None else health.cause.kind
                unfit.add_metric((*names[gpu.uuid], held), 1)
        yield unfit
        yield _gauge(
            "lockstep_gpu_memory_bytes",
            "Memory that it has",
            GPU_LABELS,
            ((names[gpu.uuid], gpu.memory_bytes) for gpu in gpus),
        )
        told = [(names[uuid], each) for uuid, each in usage.items() if uuid in names]
        for name, what, rows in (
            ("memory_used_bytes", "Memory in use", [(n, u.memory_used) for n, u in told]),
            ("utilization_ratio", "Part of time at work", [(n, u.utilization) for n, u in told]),
            ("temperature_celsius", "Temperature", [(n, u.celsius) for n, u in told]),
            ("power_watts", "Power drawn", [(n, u.watts) for n, u in told]),
        ):
            yield _gauge(f"lockstep_gpu_{name}", what, GPU_LABELS, rows)
        yield _counter(
            "lockstep_gpu_nvlink_errors",
            "Replays, recoveries and checksum errors of all its NVLinks",
            GPU_LABELS,
            ((n, u.link_errors) for n, u in told),
        )

    def _errors(self) -> Iterator[Metric]:
        names = {g.uuid: (str(g.index), g.uuid) for g in self._node.state.topology.gpus}
        facts = [gpu for gpu in self._hardware.facts if gpu.uuid in names]
        yield _gauge(
            "lockstep_gpu_nvlinks_active",
            "NVLinks that are up",
            GPU_LABELS,
            ((names[g.uuid], sum(link.active for link in g.nvlinks)) for g in facts if g.nvlinks),
        )
        ecc = GaugeMetricFamily(
            "lockstep_gpu_ecc_uncorrectable",
            "Uncorrectable memory errors: volatile (since its reset) and aggregate",
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
            "Errors that the driver sent, by number",
            (*GPU_LABELS, "xid"),
            (
                ((*names.get(uuid, ("", uuid)), str(code)), count)
                for (uuid, code), count in list(self._hardware.xids.items())
            ),
        )

    def _grants(self, usage: dict[str, Usage]) -> Iterator[Metric]:
        grants = self._node.state.grants
        yield _gauge(
            "lockstep_grant_devices",
            "Devices that a container holds",
            (*GRANT_LABELS, "resource"),
            (((g.namespace, g.pod, g.container, g.resource), len(g.device_ids)) for g in grants),
        )
        index = {gpu.uuid: str(gpu.index) for gpu in self._node.state.topology.gpus}
        yield _gauge(
            "lockstep_grant_gpu_memory_used_bytes",
            "Memory in use of a whole GPU that a container holds",
            (*GRANT_LABELS, "gpu"),
            (
                ((g.namespace, g.pod, g.container, index[uuid]), usage[uuid].memory_used)
                for g in grants
                if g.resource == GPU
                for uuid in g.device_ids
                if uuid in usage and uuid in index
            ),
        )

    def _cards(self) -> Iterator[Metric]:
        hcas = self._node.state.topology.hcas
        yield _gauge(
            "lockstep_hca_up",
            "1: a port is active",
            ("hca",),
            (((hca.name,), int(not hca.why)) for hca in hcas),
        )
        yield _gauge(
            "lockstep_hca_rate_gbps",
            "Rate of its fastest port",
            ("hca",),
            (((hca.name,), hca.rate_gbps) for hca in hcas),
        )

        memlock = self._node.state.topology.memlock
        yield _gauge(
            "lockstep_runtime_memlock_bytes",
            "Memory that containers may lock, by what their runtime was started with",
            (),
            (((), float(memlock if memlock > 0 else "inf")),) if memlock else (),
        )
        nics = self._hardware.nics
        yield _gauge(
            "lockstep_hca_falls",
            "How often it went down, since it was last fit for long",
            ("hca",),
            (((name,), health.failures) for name, health in list(nics.items())),
        )

    def _rdma(self) -> Iterator[Metric]:
        """Of containers' cards, what their cgroups say. No limit is not a number."""
        uses = self._node.state.rdma_use
        labels = ("namespace", "pod", "hca", "kind")
        for name, what, told in (
            ("used", "RDMA resources in use", [(use, use.current) for use in uses]),
            ("limit", "RDMA resources that it may have", [(use, use.limit) for use in uses]),
        ):
            yield _gauge(
                f"lockstep_grant_rdma_{name}",
                what,
                labels,
                (
                    ((use.namespace, use.pod, use.card, kind), count if count >= 0 else None)
                    for use, amount in told
                    for kind, count in (
                        ("handles", amount.hca_handle),
                        ("objects", amount.hca_object),
                    )
                ),
            )
        yield _counter(
            "lockstep_grant_rdma_failures",
            "How often its limits were in the way, where the kernel tells",
            labels[:3],
            (
                ((use.namespace, use.pod, use.card), use.failures if use.failures >= 0 else None)
                for use in uses
            ),
        )

    def _self(self) -> Iterator[Metric]:
        state, events = self._node.state, self._hardware.events
        kubelets = [(kubelet, (kubelet.resource,)) for kubelet in tuple(self._kubelets)]
        yield _gauge(
            "lockstep_agent_registered",
            "1: the kubelet takes this resource from us",
            ("resource",),
            ((name, int(kubelet.registered)) for kubelet, name in kubelets),
        )
        took = HistogramMetricFamily(
            "lockstep_agent_allocate_seconds", "Answers to Allocate", labels=("resource",)
        )
        for kubelet, name in kubelets:
            took.add_metric(name, kubelet.took.buckets(), kubelet.took.total_s)
        yield took
        plain = {
            "intents": ("Plans of the centre for pods here", len(state.intents)),
            "generation": ("Of the node's state", state.generation),
            "event_gpus": (
                "GPUs that tell errors as they happen",
                events.listening if events else 0,
            ),
        }
        for key, (what, value) in plain.items():
            yield GaugeMetricFamily(f"lockstep_agent_{key}", what, value)
        if self._reporter:
            reports = {"sent": self._reporter.sent, "failed": self._reporter.failed}
            rows = [((outcome,), count) for outcome, count in reports.items()]
            yield _counter("lockstep_agent_reports", "To the centre", ("outcome",), rows)


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
