"""The agent at work: a few threads around one Node. Each of them can fail and try again without the
others noticing."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from agent.cgroups import Cgroups
from agent.device_monitor import DeviceMonitor
from agent.kubelet.directory_watch import DirectoryWatch
from agent.kubelet.plugin import DevicePlugin
from agent.kubelet.pod_resources import AdmissionGate, ObservedGrants, PodResourcesClient
from agent.kubelet.registration import PluginRegistration
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.facts import Unusable
from agent.mig.profile_resources import Resources
from agent.mig.slice_resource import SliceOffer
from agent.nics.nic_resource import HcaOffer
from agent.nics.rdma_limits import Limits
from agent.node_state import AgentNode, NodeState
from agent.reporter import Reporter, SchedulerEndpoint
from agent.resources.cdi import Injection, Specs
from agent.resources.device_files import DeviceFiles
from agent.resources.device_resource import DeviceResource
from agent.resources.gpu_resource import RecentAllocation
from agent.resources.whole_gpu import WholeGpuResource
from agent.settings import Settings, version
from agent.sharing.memory_watch import MemoryWatch, capped
from agent.sharing.setup_requests import STATES
from agent.sharing.share_resource import GpuShareResource
from protos.names import RDMA
from protos.probes import Probes, Unservable
from protos.topology import RdmaLimit

log = logging.getLogger(__name__)

STOP_S = 0.8
MEMORY_S = 2.0  # between looks at processes' memory; without a cap there is nothing to look at


class Agent:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.node = AgentNode(settings.node)
        self._stop = threading.Event()
        self._interrupted: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._hardware = DeviceMonitor(settings, self.node)
        resources = PodResourcesClient(settings.kubelet_dir / "pod-resources" / "kubelet.sock")
        admissions = AdmissionGate()
        self._resources = resources
        unlisted = UnlistedPods(
            settings.kubelet_dir / "device-plugins", settings.sysfs_root / "fs" / "cgroup"
        )
        self._truth = ObservedGrants(self.node, resources, admissions, unlisted)
        self._limits = Limits(
            self.node,
            Cgroups(settings.cgroup_root) if settings.cgroup_root else None,
            settings.kubelet_dir / "device-plugins",
            RdmaLimit(settings.rdma_hca_handles, settings.rdma_hca_objects),
        )
        files = DeviceFiles(
            self.node,
            self._hardware.minors,
            # The files here are not those of the machine in a capture.
            "never" if settings.capture else settings.pass_device_nodes,
            settings.dev_root,
            settings.proc_root,
        )
        specs = Specs(settings.cdi_dir) if settings.cdi_dir else None
        self._injections = [
            Injection(settings.injection(), kind, name, specs, current)
            for kind, name, current in (
                (settings.cdi_kind, "LOCKSTEP_GPU", files.gpus),
                (RDMA, "LOCKSTEP_HCA", files.cards),
            )
        ]
        given, cards_given = RecentAllocation(), RecentAllocation()
        gpus = WholeGpuResource(files.of, self._injections[0], given)
        hcas = HcaOffer(
            files.of_cards,
            given.now,
            self._injections[1],
            self._limits.pre_start,
            cards_given,
        )
        shares = GpuShareResource(files.of, self._injections[0], self._hardware.sharing)
        offers: tuple[DeviceResource, ...] = (gpus, shares, hcas)
        self._plugins = DirectoryWatch(settings.kubelet_dir / "device-plugins", self.node.wake)
        self._admissions = admissions
        self._kubelets = [self._kubelet(offer) for offer in offers]
        self._slices = Resources(
            self.node,
            lambda resource: self._serve(
                self._kubelet(
                    SliceOffer(resource, files.of, self._injections[0], given, cards_given.now)
                )
            ),
        )
        made = settings.sharing_dir
        self._setups = DirectoryWatch(made / STATES, self._hardware.wake) if made else None
        self._reporter: Reporter | None = None
        self._probes: Probes | None = None
        if settings.server:
            peer = SchedulerEndpoint(
                settings.server, settings.ca_file, settings.token_file, settings.server_name
            )
            self._reporter = Reporter(
                self.node,
                peer,
                settings.report_every_s,
                version(),
                on_plans=self._truth.look_for,
            )

    def _kubelet(self, offer: DeviceResource) -> PluginRegistration:
        plugin = DevicePlugin(offer, self.node, self._resources, self._admissions, self._truth)
        return PluginRegistration(self._plugins, self.node, plugin)

    def _serve(self, kubelet: PluginRegistration) -> None:
        if kubelet not in self._kubelets:
            self._kubelets.append(kubelet)
        self._spawn("kubelet", partial(kubelet.run, self._stop))

    def start(self) -> None:
        """Raises CaptureError or Unusable: what was configured so will not heal."""
        folder = self._settings.cgroup_root
        if folder and not folder.is_dir():
            raise Unusable(f"--cgroup-root {folder}: there is no such folder")
        self._serve_probes()
        self._hardware.look(first=True)
        every = self._settings.report_every_s
        self._spawn("survey", partial(self._hardware.run, self._stop))
        if events := self._hardware.events:
            self._spawn("events", partial(events.run, self._stop))
        self._spawn("folder", partial(self._plugins.run, self._stop))
        for kubelet in self._kubelets:
            self._serve(kubelet)
        self._spawn("slices", partial(self._slices.run, self._stop))
        self._spawn("truth", lambda: self._truth.run(every, self._stop))
        if self._settings.injection() != "env":
            self._spawn("cdi", self._keep_specs)
        if self._settings.cgroup_root:
            self._spawn("limits", self._keep_limits)
        self._spawn("sharing", self._keep_sharing)
        if setups := self._setups:
            self._spawn("setups", partial(setups.run, self._stop))
        if self._settings.gpu_memory != "none" and not self._settings.capture:
            self._spawn("memory", self._watch_memory)
        if reporter := self._reporter:
            self._spawn("report", lambda: reporter.run(self._stop))
            self._spawn("intents", lambda: reporter.run_intents(self._stop))
        else:
            log.info("no --server: serving the kubelet only")

    def _serve_probes(self) -> None:
        """Raises Unusable."""
        if not self._settings.metrics_listen:
            return
        from agent.metrics import Metrics, registry  # nobody else needs it

        known = Metrics(self.node, self._hardware, self._kubelets, self._reporter)
        try:
            self._probes = Probes(
                self._settings.metrics_listen,
                registry(known),
                unhealthy=self._unhealthy,
                unready=self._unready,
            )
        except Unservable as error:
            raise Unusable(str(error)) from error
        self._probes.start()
        log.info("metrics and probes are served on port %d", self._probes.port)

    def _unhealthy(self) -> str:
        """What only a new start could mend. A driver that hangs is not of that kind."""
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead:
            return f"not running: {', '.join(dead)}"
        s = self._settings
        late_s = time.monotonic() - self._hardware.looked_at
        if late_s > 3 * s.survey_every_s + 2 * s.driver_wait_s + 30:
            return f"the hardware was last looked at {late_s:.0f} s ago"
        return ""

    def _unready(self) -> str:
        waits = [k.resource for k in self._kubelets if k.offers and not k.registered]
        return f"not registered with the kubelet: {', '.join(waits)}" if waits else ""

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        # Daemons: a driver that hangs must not keep the process from ending.
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Until interrupt()."""
        self._interrupted.get()

    def stop(self) -> None:
        """Within a second; may be called twice."""
        self._stop.set()
        self._truth.stop()
        if self._probes:
            self._probes.stop()
            self._probes = None
        self._hardware.wake()
        self._plugins.stop()
        if self._setups:
            self._setups.stop()
        self.node.wake()
        if self._reporter:
            self._reporter.stop()
        deadline = time.monotonic() + STOP_S  # of all together, however many resources there are
        for thread in tuple(self._threads):
            patience_s = deadline - time.monotonic() if thread.name == "kubelet" else 0.05
            thread.join(max(0.0, patience_s))
        self._resources.close()

    def interrupt(self) -> None:
        """Of a signal handler, at any moment and more than once: an Event's lock could be held by
        the very thread that the signal stopped, a SimpleQueue may be entered again."""
        self._interrupted.put(None)

    def _keep_specs(self) -> None:
        while not self._stop.is_set():
            state = self.node.state
            for injection in self._injections:
                injection.refresh()
            self.node.wait(self._moved(state), timeout_s=self._settings.survey_every_s)

    def _moved(self, old: NodeState) -> Callable[[NodeState], bool]:
        return lambda state: state.topology is not old.topology or self._stop.is_set()

    def _watch_memory(self) -> None:
        s = self._settings
        plugins = s.kubelet_dir / "device-plugins"
        memory = MemoryWatch(
            self.node,
            self._hardware.processes,
            s.proc_root,
            plugins,
            s.gpu_memory_grace_s,
            watched=self._hardware.sharing.watched,
        )
        while not self._stop.is_set():
            self.node.wait(lambda state: capped(state) or self._stop.is_set(), timeout_s=60)
            self.node.set_memory_over(memory.look(time.monotonic()))
            self._stop.wait(MEMORY_S)

    def _keep_sharing(self) -> None:
        """At every change of who has shares; a GPU that is nobody's any more is looked at anew."""
        known: frozenset[str] = frozenset()
        while not self._stop.is_set():
            state = self.node.state
            self._hardware.sharing.keep()
            shared = frozenset(state.allocated().shared)
            if shared != known:
                self._hardware.wake()
            known = shared
            pause_s = self._settings.survey_every_s if shared else 60
            self.node.wait(self._given(state), timeout_s=pause_s)

    def _given(self, old: NodeState) -> Callable[[NodeState], bool]:
        return lambda state: (
            state.grants is not old.grants
            or state.grants_known != old.grants_known
            or state.allocations is not old.allocations
            or state.unlisted is not old.unlisted
            or state.intents is not old.intents
            or self._stop.is_set()
        )

    def _keep_limits(self) -> None:
        while not self._stop.wait(self._settings.report_every_s):
            self.node.set_rdma_use(self._limits.keep())
