"""Keeps the node's topology what the hardware says: looks from time to time and at every event, and
never waits for a driver that hangs longer than it said it would."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue

from agent import commands, nvml
from agent.backoff import StateLogger
from agent.health import gpu_health, nic_health
from agent.health.gpu_health import DeviceHealth, XidEvent
from agent.machine import host, sysfs, xid_rules
from agent.machine.capture import CaptureError
from agent.machine.facts import GpuFacts, Machine, NvmlFacts, Unusable
from agent.machine.survey import survey
from agent.mig import slice_health
from agent.nics import nic_shares, selector
from agent.node import AgentNode
from agent.nvml.processes import MemoryByPid
from agent.nvml.processes import read as read_processes
from agent.nvml.usage import Usage
from agent.nvml.usage import read as read_usage
from agent.settings import Settings
from agent.sharing.sharing import Sharing
from agent.timeout_call import TimedOut, WithTimeout
from protos import matrix
from protos.topology import NodeTopology, RdmaLimit

log = logging.getLogger(__name__)

USAGE_S = 2.0  # what was read is good for so long
METER_S = 1.0  # a driver that takes longer tells no usage

CALM_S = 1.0  # a storm of errors is one look in so long
MOST_XIDS = 1000  # that are counted apart


class DeviceMonitor:
    def __init__(self, settings: Settings, node: AgentNode) -> None:
        self._settings, self._node = settings, node
        self._log = StateLogger(log)
        self._noted: set[str] = set()
        self._driver = WithTimeout("the NVIDIA driver")
        self._news: SimpleQueue[XidEvent | None] = SimpleQueue()
        self.minors: dict[str, int] = {}  # of the GPUs' device files, by uuid
        self._meter = WithTimeout("the NVIDIA driver")
        self._usage: tuple[float, tuple[Usage, ...]] = (-USAGE_S, ())
        self.sharing = Sharing(settings, node, self.processes)
        self.facts: tuple[GpuFacts, ...] = ()
        self.gpus: dict[str, DeviceHealth] = {}  # by uuid
        self.nics: dict[str, DeviceHealth] = {}  # by name
        self.slices: dict[str, DeviceHealth] = {}  # by uuid
        self.looked_at = 0.0  # by the monotonic clock
        self.xids: dict[tuple[str, int], int] = {}  # how often, by uuid and number
        self.events = (
            None if settings.capture else nvml.EventListener(settings.driver_root, self.heard)
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            events = self._wait()
            if stop.is_set():
                return
            self.look(events)
            if events:
                stop.wait(CALM_S)

    def heard(self, uuid: str, xid: int, gi: int = -1, ci: int = -1) -> None:
        """From any thread: the driver says that something happened."""
        self._news.put(XidEvent(uuid, xid, gi, ci))

    def wake(self) -> None:
        self._news.put(None)

    def _wait(self) -> list[XidEvent]:
        """For the next look: what was heard until then."""
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
        """Until the next look; sooner where a hold ends."""
        every_s = self._settings.survey_every_s
        held = (*self.gpus.values(), *self.nics.values(), *self.slices.values())
        due = gpu_health.next_release(held, self._settings.hold_down)
        return every_s if due is None else min(every_s, max(0.05, due - time.monotonic() + 0.01))

    def look(self, events: Sequence[XidEvent] = (), *, first: bool = False) -> None:
        """Raises CaptureError at the first look: a capture that can't be read will not heal."""
        known = self._node.state.topology
        self._tell(events, known)
        try:
            seen = self._seen(known)
        except CaptureError as error:
            if first:
                raise
            self._log.failed(str(error))
            return
        xids = [event for event in events if event.xid]
        before = self.gpus
        self.gpus, topology = gpu_health.step(
            self.gpus,
            seen,
            self.facts,
            xids,
            now=time.monotonic(),
            hold_down=self._settings.hold_down,
        )
        now, hold_down = time.monotonic(), self._settings.hold_down
        self.slices, topology = slice_health.step(
            self.slices, topology, xids, now=now, hold_down=hold_down
        )
        self.nics, topology = nic_health.step(self.nics, topology, now=now, hold_down=hold_down)
        self._say(known, topology, first)
        self._node.set_topology(self._offered(topology))
        self.looked_at = time.monotonic()
        if self.events and _listed(before) != _listed(self.gpus):
            self.events.renew()

    def _say(self, known: NodeTopology, topology: NodeTopology, first: bool) -> None:
        for sentence in slice_health.layout_changes(known, topology):
            log.info("%s", sentence)
        for judge in () if first else (gpu_health, slice_health, nic_health):
            for sentence in judge.changes(known, topology):
                log.warning("%s", sentence)

    def _offered(self, topology: NodeTopology) -> NodeTopology:
        s = self._settings
        default = RdmaLimit(s.rdma_hca_handles, s.rdma_hca_objects)
        policy = nic_shares.NicPolicy(s.rdma_shares, default, s.cgroup_root is not None)
        topology = nic_shares.with_shares(topology, s.rdma_devices, policy)
        self._note(topology)
        return self.sharing.with_sharing(topology, self.facts)

    def _note(self, topology: NodeTopology) -> None:
        """What an admin should know of the network cards, once."""
        idle = selector.unmatched(topology, self._settings.rdma_devices)
        noted = {f"--rdma-devices: no network card here is {each}" for each in idle}
        if any(hca.shares for hca in topology.hcas):
            noted.update(matrix.notes(topology))
        for sentence in sorted(noted - self._noted):
            log.warning("%s", sentence)
        self._noted = noted

    def processes(self, uuids: Sequence[str]) -> Mapping[str, MemoryByPid | None]:
        """Raises NvmlError or TimedOut."""
        return self._meter.call(lambda: read_processes(self._settings.driver_root, uuids), METER_S)

    def _tell(self, events: Sequence[XidEvent], known: NodeTopology) -> None:
        """One line for each error of each GPU, however often it came."""
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
        """The topology with what speaks against each GPU at this moment."""
        s = self._settings
        try:
            machine = self._driver.call(
                lambda: commands.observe(s.capture, s.driver_root, s.sysfs_root, s.proc_root),
                s.driver_wait_s,
            )
        except CaptureError:
            raise
        except (Unusable, TimedOut) as error:
            self._log.failed(f"{error}; looking again every {s.survey_every_s:g} s")
            if known.gpus:
                if not isinstance(error, TimedOut):
                    self.facts = ()  # no driver: when it is back, it starts anew
                return gpu_health.all_unhealthy(known, str(error))
            return self._surveyed(
                Machine(NvmlFacts(), sysfs.read(s.sysfs_root), host.read(s.proc_root))
            )
        self.minors.update({gpu.uuid: gpu.minor for gpu in machine.nvml.gpus})
        self.facts = machine.nvml.gpus
        seen = self._surveyed(machine)
        self._log.ok(f"{len(seen.gpus)} GPUs, {len(seen.hcas)} network cards")
        return gpu_health.keep_layout(known, seen)

    def _surveyed(self, machine: Machine) -> NodeTopology:
        return survey(machine, functions=selector.functions(self._settings.rdma_devices))

    def usage(self) -> tuple[Usage, ...]:
        """What the GPUs do now, or did a moment ago; none where the driver does not say."""
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
