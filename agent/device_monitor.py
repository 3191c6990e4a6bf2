"""Keeps the node's topology up to date: surveys the hardware periodically and on driver events, and
applies health, sharing and NIC selection to the result. Every call of the driver, and reading the kernel's files,
has a timeout."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from agent import cgroups, container_use, nvml
from agent.backoff import StateLogger
from agent.health import gpu_health, gpu_speed, nic_health
from agent.health.gpu_health import DeviceHealth, XidEvent
from agent.machine import capture, imex, kernel, plausible, unanswered, xid_rules
from agent.machine.capture import CaptureError
from agent.machine.facts import GpuFacts, HostFacts, Machine, NvmlFacts, SysfsFacts, Unusable
from agent.machine.survey import survey
from agent.mig import slice_health
from agent.nics import nic_shares, rails, selector
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.nvml import processes
from agent.nvml.processes import MemoryByPid
from agent.nvml.usage import Usage
from agent.nvml.usage import read as read_usage
from agent.preflight.preflight import Preflight
from agent.settings import Settings
from agent.sharing.sharing import Sharing
from agent.timeout_call import TimedOut, WithTimeout
from protos import matrix, slicing
from protos.topology import GpuUse, NodeTopology, RdmaLimit

log = logging.getLogger(__name__)

USAGE_S = 2.0  # how long a reading of usage is reused
METER_S = 1.0  # timeout of a reading of usage or processes
CALM_S = 1.0  # pause after a survey that events triggered: a burst of errors causes one survey
MOST_XIDS = 1000  # pairs of GPU and XID that are counted; more are not
MOST_NEWS = 10_000  # events that wait for a survey; more are dropped


class DeviceMonitor:
    def __init__(self, settings: Settings, node: AgentNode) -> None:
        self._settings, self._node = settings, node
        self._log = StateLogger(log)
        self._warned: set[str] = set()
        self._left_out: tuple[str, ...] = ()  # devices that cannot be as the driver or /sys says
        self._driver = WithTimeout("the NVIDIA driver")
        self._kernel = WithTimeout(f"a file below {settings.sysfs_root}")
        self._kernel_log = StateLogger(log)
        self._of_kernel: kernel.Facts = (SysfsFacts(), HostFacts())
        self._news: SimpleQueue[XidEvent | None] = SimpleQueue()
        self.minors: dict[str, int] = {}  # minor numbers of the GPUs' device files, by UUID
        self._meter = WithTimeout("the NVIDIA driver")
        self._usage: tuple[float, tuple[Usage, ...]] = (-USAGE_S, ())
        self.sharing = Sharing(settings, node, self.processes)
        self.preflight = Preflight(
            settings.preflight, settings.preflight_wait_s, node, lambda: self.facts, wake=self.wake
        )
        self.users: dict[str, dict[int, str]] = {}  # pod UIDs by pid, by UUID of GPU or slice
        self.facts: tuple[GpuFacts, ...] = ()
        self._answered: unanswered.Answered = {}
        self.gpus: dict[str, DeviceHealth] = {}  # by UUID
        self.speeds: dict[str, gpu_speed.Speed] = {}  # by UUID
        self.nics: dict[str, DeviceHealth] = {}  # by name
        self.slices: dict[str, DeviceHealth] = {}  # by UUID
        self.refreshed_at = 0.0  # monotonic time
        self._driver_worked = False  # in this run of the agent
        self.driver_gone_at: float | None = None  # monotonic time since which NVML can't be opened
        self.xids: dict[tuple[str, int], int] = {}  # counts by UUID and XID
        self.events = (
            None if settings.capture else nvml.EventListener(settings.driver_root, self.on_event)
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            events = self._wait()
            if stop.is_set():
                return
            try:
                self.refresh(events)
            except Exception:
                # What is known stays. The liveness probe fails if no later survey succeeds.
                log.exception("a bug in the hardware survey; please report it")
            if events:
                stop.wait(CALM_S)

    def on_event(self, uuid: str, xid: int, gi: int = -1, ci: int = -1) -> None:
        """The driver reported an XID; may be called from any thread."""
        if self._news.qsize() < MOST_NEWS:
            self._news.put(XidEvent(uuid, xid, gi, ci))

    def wake(self) -> None:
        self._news.put(None)

    def _wait(self) -> list[XidEvent]:
        """Waits until the next survey is due; returns the events that came until then."""
        events: list[XidEvent] = []
        try:
            item = self._news.get(timeout=self._pause_s())
            while True:
                if item is not None:
                    events.append(item)
                item = self._news.get_nowait()
        except Empty:
            return events

    def _pause_s(self) -> float:
        """Returns the seconds until the next survey, or until the end of a hold-down if that is earlier."""
        every_s = self._settings.survey_every_s
        slow = (each.health for each in self.speeds.values())
        held = (*self.gpus.values(), *slow, *self.nics.values(), *self.slices.values())
        due = gpu_health.next_release(held, self._settings.hold_down)
        return every_s if due is None else min(every_s, max(0.05, due - time.monotonic() + 0.01))

    def refresh(self, events: Sequence[XidEvent] = (), *, first: bool = False) -> None:
        """Surveys the hardware and updates the node. Raises CaptureError if first: an unreadable
        capture stays unreadable."""
        known = self._node.surveyed
        self._log_xids(events, known)
        try:
            seen = self._seen(known)
        except CaptureError as error:
            if first:
                raise
            self._log.failed(str(error))
            return
        xids = [event for event in events if event.xid]
        before = self.gpus
        now, hold_down = time.monotonic(), self._settings.hold_down
        self.gpus, topology = gpu_health.step(
            self.gpus, seen, self.facts, xids, now=now, hold_down=hold_down
        )
        self.speeds, topology = gpu_speed.step(
            self.speeds, topology, self.facts, now=now, hold_down=hold_down
        )
        self.slices, topology = slice_health.step(
            self.slices, topology, xids, now=now, hold_down=hold_down
        )
        self.nics, topology = nic_health.step(self.nics, topology, now=now, hold_down=hold_down)
        self._log_changes(known, topology, first)
        self._read_users(topology)
        self._node.set_topology(self.preflight.with_pending(self._with_shares(topology)))
        self.refreshed_at = time.monotonic()
        if self.events and _listed(before) != _listed(self.gpus):
            self.events.renew()

    def _log_changes(self, known: NodeTopology, topology: NodeTopology, first: bool) -> None:
        for sentence in slice_health.layout_changes(known, topology):
            log.info("%s", sentence)
        for health in () if first else (gpu_health, gpu_speed, slice_health, nic_health):
            for sentence in health.changes(known, topology):
                log.warning("%s", sentence)

    def _with_shares(self, topology: NodeTopology) -> NodeTopology:
        s = self._settings
        default = RdmaLimit(s.rdma_hca_handles, s.rdma_hca_objects)
        policy = nic_shares.NicPolicy(s.rdma_shares, default, s.cgroup_root is not None)
        topology = nic_shares.with_shares(topology, s.rdma_devices, policy)
        topology = rails.with_rails(topology, s.rdma_rails)
        self._warn(topology)
        return self.sharing.with_sharing(topology, self.facts)

    def _warn(self, topology: NodeTopology) -> None:
        """Warns once about each limitation of the RDMA NICs, and of the agent's rights."""
        idle = selector.unmatched(topology, self._settings.rdma_devices)
        warnings = {f"--rdma-devices: no RDMA NIC matches {each}" for each in idle}
        bare = rails.empty(topology, self._settings.rdma_rails)
        warnings |= {f"--rdma-rails: {each} has no NIC that --rdma-devices serves" for each in bare}
        if any(hca.shares for hca in topology.hcas):
            warnings.update(matrix.notes(topology))
        warnings |= {
            f"GPU {gpu.index}: the driver refuses the agent {', '.join(gpu.denied)}"
            for gpu in self.facts
            if gpu.denied
        }
        warnings.update(self._left_out)
        if topology.imex_why:
            warnings.add(f"NVLink ends at this machine: {topology.imex_why}")
        for sentence in sorted(warnings - self._warned):
            log.warning("%s", sentence)
        self._warned = warnings

    def processes(self, uuids: Sequence[str]) -> Mapping[str, MemoryByPid | None]:
        """Raises NvmlError or TimedOut."""
        return self._meter.call(lambda: processes.read(self._settings.driver_root, uuids), METER_S)

    def gpu_use(self, state: NodeState) -> tuple[GpuUse, ...]:
        """Returns the use of GPUs by container, as far as the driver tells; at most container_use.MOST."""
        settings = self._settings
        found = container_use.exclusive(state, {each.uuid: each for each in self.usage()})
        if gpus := container_use.shared_gpus(state):
            root = settings.driver_root
            try:
                memory = self.processes(gpus)
                rates = self._meter.call(lambda: processes.rates(root, gpus), METER_S)
                plugins = settings.kubelet_dir / "device-plugins"
                found += container_use.shared(state, memory, rates, settings.proc_root, plugins)
            except (OSError, Unusable, TimedOut) as error:
                log.debug("no use by process: %s", error)
        return tuple(found[: container_use.MOST])

    def _read_users(self, topology: NodeTopology) -> None:
        """Reads which pods have processes on which GPUs, as far as the driver shows processes."""
        if self._settings.capture:
            return
        uuids = [gpu.uuid for gpu in topology.gpus if gpu.healthy and not gpu.mig]
        uuids += [part.uuid for gpu, part in slicing.of(topology) if gpu.healthy]
        try:
            found = self.processes(uuids)
        except (Unusable, TimedOut) as error:
            log.debug("no processes: %s", error)
            return
        proc = self._settings.proc_root
        self.users = {
            uuid: {pid: pod for pid in pids if (pod := cgroups.pod_of(proc, pid))}
            for uuid, pids in found.items()
            if pids
        }

    def _log_xids(self, events: Sequence[XidEvent], known: NodeTopology) -> None:
        """One log line for each XID of each GPU, with its count."""
        for event, times in Counter(event for event in events if event.xid).items():
            gpu = next((gpu.index for gpu in known.gpus if gpu.uuid == event.uuid), "?")
            kind, found = xid_rules.classify(event.xid)
            often = f", {times} times" if times > 1 else ""
            where = f", GPU instance {event.gi}" if event.gi >= 0 else ""
            name = event.uuid or "-"
            log.warning("GPU %s (%s%s) %s%s [%s]", gpu, name, where, found.why, often, kind)
            key = (event.uuid, event.xid)
            if key in self.xids or len(self.xids) < MOST_XIDS:
                self.xids[key] = self.xids.get(key, 0) + times

    def _seen(self, known: NodeTopology) -> NodeTopology:
        """The topology, with the reason why each GPU is unhealthy at this moment."""
        s = self._settings
        try:
            machine = self._machine()
        except CaptureError:
            raise
        except (Unusable, TimedOut) as error:
            self._note_driver(isinstance(error, nvml.NvmlError))
            self._log.failed(f"{error}; retrying every {s.survey_every_s:g} s")
            if known.gpus:
                if not isinstance(error, TimedOut):
                    self.facts = ()  # the driver's counters start again when it is back
                return gpu_health.all_unhealthy(known, str(error))
            machine = Machine(NvmlFacts(), *self._kernel_facts())
            return self._surveyed(plausible.checked(machine)[0])
        self._note_driver(False)
        self._driver_worked = True
        machine, self._left_out = plausible.checked(machine)
        self._answered, nvml_facts = unanswered.since(self._answered, machine.nvml)
        machine = replace(machine, nvml=nvml_facts)
        self.facts = machine.nvml.gpus
        seen = self._surveyed(machine)
        self._log.ok(f"{len(seen.gpus)} GPUs, {len(seen.hcas)} RDMA NICs")
        kept = gpu_health.keep_layout(known, self.preflight.with_failures(seen))
        self._keep_minors(kept)
        return kept

    def _machine(self) -> Machine:
        """Raises Unusable or TimedOut."""
        s = self._settings
        if s.capture:
            return capture.load(s.capture, s.node if s.capture_uuids == "own" else "")
        nvml_facts = self._driver.call(lambda: nvml.read(s.driver_root), s.driver_wait_s)
        return Machine(nvml_facts, *self._kernel_facts())

    def _kernel_facts(self) -> kernel.Facts:
        """Reads the kernel's files. While a read hangs, returns the result of the last one, which is empty before the
        first. Raises Unusable."""
        s = self._settings
        try:
            self._of_kernel = self._kernel.call(
                lambda: kernel.read(s.sysfs_root, s.proc_root, s.driver_root, s.pcie_tree, s.node),
                s.driver_wait_s,
            )
            self._kernel_log.ok(f"{s.sysfs_root} can be read")
        except TimedOut as error:
            self._kernel_log.failed(f"{error}; NICs and NUMA nodes are as they were read before")
        return self._of_kernel

    def _keep_minors(self, topology: NodeTopology) -> None:
        """Keeps the minor numbers of the GPUs that exist and of those that are lost. Others hold the dictionary
        itself."""
        self.minors.update({gpu.uuid: gpu.minor for gpu in self.facts if gpu.uuid})
        for uuid in self.minors.keys() - {gpu.uuid for gpu in topology.gpus}:
            del self.minors[uuid]

    def _note_driver(self, gone: bool) -> None:
        if not gone:
            self.driver_gone_at = None
        elif self._driver_worked and self.driver_gone_at is None:
            self.driver_gone_at = time.monotonic()

    def _surveyed(self, machine: Machine) -> NodeTopology:
        s = self._settings
        seen = survey(machine, functions=selector.functions(s.rdma_devices))
        return imex.checked(seen, s.imex_channel, s.dev_root)

    def usage(self) -> tuple[Usage, ...]:
        """Usage of the GPUs, at most USAGE_S old; empty if the driver does not report it."""
        when, usage = self._usage
        if self._settings.capture or time.monotonic() - when < USAGE_S:
            return usage
        links = {g.uuid: tuple(k.link for k in g.nvlinks if k.active) for g in self.facts}
        try:
            usage = self._meter.call(lambda: read_usage(self._settings.driver_root, links), METER_S)
        except (Unusable, TimedOut) as error:
            log.debug("no usage: %s", error)
            usage = ()
        self._usage = (time.monotonic(), usage)
        return usage


def _listed(devices: Mapping[str, DeviceHealth]) -> set[str]:
    return {uuid for uuid, health in devices.items() if not health.lost}
