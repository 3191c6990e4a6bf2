"""The agent at work: a few threads around one AgentNode. A thread that fails retries by itself and
does not stop the others."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from agent.backoff import Backoff
from agent.cgroups import Cgroups
from agent.claims.claim_driver import ClaimDriver
from agent.claims.claim_health import ClaimHealth
from agent.claims.claim_records import ClaimRecords
from agent.claims.claim_service import ClaimService
from agent.device_monitor import DeviceMonitor
from agent.kubelet.directory_watch import DirectoryWatch
from agent.kubelet.node_owner import NodeOwner
from agent.kubelet.plugin import DevicePlugin, same_devices
from agent.kubelet.pod_resources import ObservedGrants, PodResourcesClient
from agent.kubelet.registration import PluginRegistration
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.facts import Unusable
from agent.nics.rdma_limits import RdmaLimitWriter
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.reporter import Reporter, SchedulerEndpoint
from agent.resources import table
from agent.resources.cdi import Injection, Specs
from agent.resources.device_files import DeviceFiles
from agent.resources.device_info import DeviceInfoFiles
from agent.resources.gpu_resource import RecentAllocation
from agent.settings import Settings, version
from agent.sharing.memory_watch import MemoryWatch, capped
from agent.sharing.setup_requests import STATES
from protos.common import signal_wait
from protos.common.probes import Probes, Unservable
from protos.names import GPU, RDMA
from protos.topology import RdmaLimit

log = logging.getLogger(__name__)

STOP_S = 0.8
FIRST_S, MOST_S = 0.5, 30.0  # pauses after a thread failed
LEAVE_S = 2.0  # for the last report
LAST_PODS_S = 0.3  # from a binding to the kubelet
GRANTS_S = 2.0  # timeout of pod-resources at the start
OWNER_S = 0.25  # between attempts to own the node
LOCK_S = 5.0  # between attempts to lock it, where that failed
MEMORY_S = 2.0  # between checks of processes' memory, while a pod has a cap


class Agent:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.node = AgentNode(settings.node)
        self._stop = threading.Event()
        self._surveyed = threading.Event()  # or stopped before
        self._interrupted: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._monitor = DeviceMonitor(settings, self.node)
        plugins = settings.kubelet_dir / "device-plugins"
        self._plugins = DirectoryWatch(plugins, self.node.wake)
        self._owner = NodeOwner(plugins, self.node.boot_id[:8])
        self._pod_resources = PodResourcesClient(
            settings.kubelet_dir / "pod-resources" / "kubelet.sock"
        )
        unlisted = UnlistedPods(
            plugins,
            settings.sysfs_root / "fs" / "cgroup",
            settings.proc_root,
            lambda: self._monitor.users,
        )
        self._grants = ObservedGrants(self.node, self._pod_resources, unlisted)
        self._limits = RdmaLimitWriter(
            self.node,
            Cgroups(settings.cgroup_root) if settings.cgroup_root else None,
            plugins,
            RdmaLimit(settings.rdma_hca_handles, settings.rdma_hca_objects),
        )
        self._services = self._make_services()
        self._claims = self._claim_driver()
        self._registrations = [self._registration(name) for name in self._names(self.node.state)]
        made = settings.sharing_dir
        self._setups = DirectoryWatch(made / STATES, self._monitor.wake) if made else None
        self._probes: Probes | None = None
        self._reporter = self._make_reporter() if settings.server else None

    def _make_services(self) -> table.Services:
        s = self._settings
        files = DeviceFiles(
            self.node,
            self._monitor.minors,
            # This machine's files do not belong to the machine in a capture.
            "never" if s.capture else s.pass_device_nodes,
            s.dev_root,
            s.proc_root,
            imex_channel=s.imex_channel,
        )
        specs = Specs(s.cdi_dir) if s.cdi_dir else None
        return table.Services(
            files=files,
            gpus=Injection(
                s.injection(), s.cdi_kind, "LOCKSTEP_GPU", specs, files.gpus, mounts=s.driver_mount
            ),
            nics=Injection(s.injection(), RDMA, "LOCKSTEP_HCA", specs, files.nics),
            nic_info=DeviceInfoFiles(s.device_info_dir),
            shares=self._monitor.sharing,
            limit_rdma=self._limits.pre_start,
            recent_gpus=RecentAllocation(),
            recent_nics=RecentAllocation(),
        )

    def _make_reporter(self) -> Reporter:
        s = self._settings
        scheduler = SchedulerEndpoint(s.server, s.ca_file, s.token_file, s.server_name)
        return Reporter(
            self.node,
            scheduler,
            s.report_every_s,
            version(),
            on_plans=self._grants.look_for,
            starting=lambda: self.awaits_kubelet(time.monotonic()),
            claims=s.device_claims.removeprefix("off"),
        )

    def _claim_driver(self) -> ClaimDriver | None:
        """Returns None without a place for records. Claims that are prepared count in mode off, too."""
        if self._settings.cdi_dir is None:
            return None
        own = replace(
            self._services, recent_gpus=RecentAllocation(), recent_nics=RecentAllocation()
        )
        records = ClaimRecords(self._settings.cdi_dir)
        return ClaimDriver(self.node, self._grants, records, lambda name: table.make(name, own))

    def _names(self, state: NodeState) -> tuple[str, ...]:
        """Names of the resources to register."""
        by_claim = {GPU} if self._settings.device_claims == "only" else set()
        return tuple(name for name in table.names(state) if name not in by_claim)

    def awaits_kubelet(self, now: float) -> bool:
        """Returns whether the kubelet's list of a resource is about to change. now: monotonic."""
        return any(each.is_awaited(now) for each in tuple(self._registrations))

    def _run_reports(self, reporter: Reporter) -> None:
        reporter.announce()
        self._surveyed.wait()
        reporter.run(self._stop)

    def _registration(self, name: str) -> PluginRegistration:
        resource = table.make(name, self._services)
        s = self._settings
        hints = s.numa_hints == "always" or (s.numa_hints == "auto" and not s.server)
        plugin = DevicePlugin(resource, self.node, self._grants, self._owner, numa_hints=hints)
        return PluginRegistration(self._plugins, self.node, plugin, self._owner.run)

    def start(self) -> None:
        """Raises CaptureError or Unusable for a configuration that cannot work."""
        folder = self._settings.cgroup_root
        if folder and not folder.is_dir():
            raise Unusable(f"--cgroup-root {folder}: no such directory")
        if self._claims:
            self._claims.restore()
        self._owner.acquire()
        self._serve_probes()
        self._spawn("owner", self._own_node)
        if self._settings.preflight != "none":
            self._grants.refresh(GRANTS_S)  # which GPUs are idle, before any is said to be healthy
        self._monitor.refresh(first=True)
        self._surveyed.set()
        every = self._settings.report_every_s
        self._spawn("survey", partial(self._monitor.run, self._stop))
        if events := self._monitor.events:
            self._spawn("events", partial(events.run, self._stop))
        self._spawn("folder", partial(self._plugins.run, self._stop))
        for registration in self._registrations:
            self._spawn("kubelet", partial(registration.run, self._stop))
        self._spawn("resources", self._serve_new_resources)
        self._spawn("grants", lambda: self._grants.run(every, self._stop))
        if setups := self._setups:
            self._spawn("setups", partial(setups.run, self._stop))
        if reporter := self._reporter:
            self._spawn("intents", lambda: reporter.run_intents(self._stop))
        else:
            log.info("no --server: serving the kubelet only")

    def _own_node(self) -> None:
        """Waits until this agent owns the node, and begins what only one agent may do."""
        while not self._owner.acquire():
            if self._stop.wait(OWNER_S):
                return
        if not self._probes:
            self._serve_probes()
        if reporter := self._reporter:
            self._spawn("report", partial(self._run_reports, reporter))
        self._surveyed.wait()
        if self._claims and self._settings.device_claims != "off":
            health = ClaimHealth(self.node)
            service = ClaimService(self._settings.kubelet_dir, self._claims, health)
            self._spawn("kubelet", partial(service.run, self._stop))
        if self._settings.preflight != "none":
            self._spawn("preflight", partial(self._monitor.preflight.run, self._stop))
        if self._settings.injection() != "env":
            self._spawn("cdi", self._keep_specs)
        if self._settings.cgroup_root:
            self._spawn("limits", self._keep_limits)
        self._spawn("sharing", self._keep_sharing)
        if self._reporter and not self._settings.capture:
            self._spawn("use", self._keep_use)
        if self._settings.gpu_memory != "none" and not self._settings.capture:
            self._spawn("memory", self._watch_memory)
        while not self._stop.wait(LOCK_S):
            self._owner.acquire()

    def _serve_probes(self) -> None:
        """Raises Unusable."""
        if not self._settings.metrics_listen:
            return
        from agent.metrics import Metrics, registry  # nothing else needs it

        metrics = Metrics(self.node, self._monitor, self._registrations, self._reporter)
        try:
            probes = Probes(
                self._settings.metrics_listen,
                registry(metrics),
                unhealthy=self._unhealthy,
                unready=self._unready,
            )
        except Unservable as error:
            if not self._owner.is_this:
                return  # tried again when it is
            raise Unusable(str(error)) from error
        self._probes = probes
        probes.start()
        log.info("serving metrics and probes on port %d", probes.port)
        if self._stop.is_set():
            probes.stop()

    def _unhealthy(self) -> str:
        """Failures that only a restart can mend; a driver that hangs is not one of them, one that
        was replaced is: a new container gets the new driver's library."""
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead:
            return f"threads ended: {', '.join(dead)}"
        s = self._settings
        late_s = time.monotonic() - self._monitor.refreshed_at
        if late_s > 3 * s.survey_every_s + 3 * s.driver_wait_s + 30:
            return f"last hardware survey {late_s:.0f} s ago"
        gone_at = self._monitor.driver_gone_at
        if gone_at is not None and time.monotonic() - gone_at > s.driver_lost_s:
            return f"NVML worked in this run and cannot be opened for {s.driver_lost_s:g} s"
        return ""

    def _unready(self) -> str:
        waits = [r.resource for r in self._registrations if r.has_devices and not r.registered]
        return f"not registered with the kubelet: {', '.join(waits)}" if waits else ""

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def again() -> None:
            keep_going(name, work, self._stop)

        # Daemon threads: a driver that hangs must not keep the process from ending.
        thread = threading.Thread(target=again, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Waits until interrupt() is called."""
        signal_wait.next_item(self._interrupted)

    def stop(self) -> None:
        """Takes less than a second, and a scheduler that does not answer two more; may be called twice."""
        if self._reporter and self._reporter.leave(LEAVE_S):
            # What is bound already reaches the kubelet while it has the devices.
            self._stop.wait(LAST_PODS_S)
        self._stop.set()
        self._surveyed.set()
        self._grants.stop()
        if self._probes:
            self._probes.stop()
            self._probes = None
        self._monitor.wake()
        self._plugins.stop()
        if self._setups:
            self._setups.stop()
        self.node.wake()
        if self._reporter:
            self._reporter.stop()
        deadline = time.monotonic() + STOP_S  # for all registrations together
        for thread in tuple(self._threads):
            timeout_s = deadline - time.monotonic() if thread.name == "kubelet" else 0.05
            thread.join(max(0.0, timeout_s))
        self._pod_resources.close()
        self._owner.release()

    def interrupt(self) -> None:
        """Ends wait(). Signal handlers call it, at any moment and more than once. The interrupted thread may hold an
        Event's lock; SimpleQueue.put is reentrant."""
        self._interrupted.put(None)

    def _serve_new_resources(self) -> None:
        """Registers resources whose names appear while the agent runs, such as those of MIG
        profiles. A registration stays: it waits while the resource has no devices."""
        known = {registration.resource for registration in self._registrations}
        while not self._stop.is_set():
            for name in self._names(self.node.state):
                if name not in known:
                    known.add(name)
                    registration = self._registration(name)
                    self._registrations.append(registration)
                    self._spawn("kubelet", partial(registration.run, self._stop))
            self.node.wait(
                lambda state: self._stop.is_set() or not known.issuperset(self._names(state)), 60
            )

    def _keep_specs(self) -> None:
        while not self._stop.is_set():
            state = self.node.state
            for injection in (self._services.gpus, self._services.nics):
                injection.refresh()
            self.node.wait(self._topology_changed(state), timeout_s=self._settings.survey_every_s)

    def _topology_changed(self, old: NodeState) -> Callable[[NodeState], bool]:
        return lambda state: state.topology is not old.topology or self._stop.is_set()

    def _watch_memory(self) -> None:
        s = self._settings
        memory = MemoryWatch(
            self.node,
            self._monitor.processes,
            s.proc_root,
            s.kubelet_dir / "device-plugins",
            s.gpu_memory_grace_s,
            watched=self._monitor.sharing.watched,
        )
        while not self._stop.is_set():
            self.node.wait(lambda state: capped(state) or self._stop.is_set(), timeout_s=60)
            self.node.set_memory_over(memory.measure(time.monotonic()))
            self._stop.wait(MEMORY_S)

    def _keep_sharing(self) -> None:
        """Runs whenever shares are allocated or released, and surveys the hardware again when the
        set of shared GPUs changes."""
        known: frozenset[str] = frozenset()
        while not self._stop.is_set():
            state = self.node.state
            self._monitor.sharing.keep()
            shared = frozenset(state.allocated().shared)
            if shared != known:
                self._monitor.wake()
            known = shared
            pause_s = self._settings.survey_every_s if shared else 60
            self.node.wait(self._allocations_changed(state), timeout_s=pause_s)

    def _allocations_changed(self, old: NodeState) -> Callable[[NodeState], bool]:
        return lambda state: (
            not same_devices(state, old)
            or state.grants_known != old.grants_known
            or state.intents is not old.intents
            or self._stop.is_set()
        )

    def _keep_limits(self) -> None:
        while not self._stop.wait(self._settings.report_every_s):
            self.node.set_rdma_use(self._limits.keep())

    def _keep_use(self) -> None:
        while not self._stop.wait(self._settings.report_every_s):
            self.node.set_gpu_use(self._monitor.gpu_use(self.node.state))


def keep_going(name: str, work: Callable[[], None], stop: threading.Event) -> None:
    """Runs the work, and again after it raised: a bug that an odd value triggers costs that pass alone.
    Returns when the work returns, or at stop."""
    backoff = Backoff(FIRST_S, MOST_S)
    while True:
        try:
            return work()
        except Exception:
            log.exception("a bug in the thread %s, which begins again; please report it", name)
        if stop.wait(backoff.pause_s()):
            return None
