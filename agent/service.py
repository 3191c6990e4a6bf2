"""The agent at work: a few threads around one Node. Each of them can fail and try again without the
others noticing."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

from agent import commands, devicenodes, health, host, sysfs
from agent.backoff import Voice
from agent.capture import CaptureError
from agent.gpus import GpuOffer
from agent.hcas import HcaOffer
from agent.kubelet import Kubelet
from agent.machine import Machine, NvmlFacts, Unusable
from agent.node import Node
from agent.offer import Offer
from agent.plugin import Plugin
from agent.podresources import Admissions, PodResources, Truth
from agent.reporter import Peer, Reporter
from agent.settings import Settings, version
from agent.survey import survey
from protos.topology import Hca, NodeTopology

log = logging.getLogger(__name__)

STOP_S = 0.8


class Agent:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.node = Node(settings.node)
        self._stop = threading.Event()
        self._interrupted: SimpleQueue[None] = SimpleQueue()
        self._voice = Voice(log)
        self._threads: list[threading.Thread] = []
        self._minors: dict[str, int] = {}  # of the GPUs' device files, by uuid
        resources = PodResources(settings.kubelet_dir / "pod-resources" / "kubelet.sock")
        admissions = Admissions()
        self._resources = resources
        self._truth = Truth(self.node, resources, admissions)
        gpus = GpuOffer(self._device_nodes)
        hcas = HcaOffer(
            settings.rdma_devices, settings.rdma_shares, self._card_nodes, gpus.just_given
        )
        offers: tuple[Offer, ...] = (gpus, hcas)
        self._kubelets = [
            Kubelet(
                settings.kubelet_dir,
                self.node,
                Plugin(offer, self.node, resources, admissions, self._truth),
            )
            for offer in offers
        ]
        self._reporter: Reporter | None = None
        if settings.server:
            peer = Peer(
                settings.server, settings.ca_file, settings.token_file, settings.server_name
            )
            self._reporter = Reporter(self.node, peer, settings.report_every_s, version())

    def start(self) -> None:
        """Raises CaptureError: a capture that can't be read will not heal."""
        self._look(first=True)
        every = self._settings.report_every_s
        self._spawn("survey", self._keep_looking)
        for kubelet in self._kubelets:
            self._spawn("kubelet", partial(kubelet.run, self._stop))
        self._spawn("truth", lambda: self._truth.run(every, self._stop))
        if reporter := self._reporter:
            self._spawn("report", lambda: reporter.run(self._stop))
            self._spawn("intents", lambda: reporter.run_intents(self._stop))
        else:
            log.info("no --server: serving the kubelet only")

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
        self.node.wake()
        if self._reporter:
            self._reporter.stop()
        for thread in self._threads:
            thread.join(STOP_S if thread.name == "kubelet" else 0.05)
        self._resources.close()

    def interrupt(self) -> None:
        """Of a signal handler, at any moment and more than once: an Event's lock could be held by
        the very thread that the signal stopped, a SimpleQueue may be entered again."""
        self._interrupted.put(None)

    # The hardware

    def _keep_looking(self) -> None:
        while not self._stop.wait(self._settings.survey_every_s):
            self._look(first=False)

    def _look(self, *, first: bool) -> None:
        known = self.node.state.topology
        try:
            now = self._topology(known)
        except CaptureError as error:
            if first:
                raise
            self._voice.bad(str(error))
            return
        for sentence in () if first else health.changes(known, now):
            log.warning("%s", sentence)
        self.node.set_topology(now)

    def _topology(self, known: NodeTopology) -> NodeTopology:
        s = self._settings
        try:
            machine = commands.observe(s.capture, s.driver_root, s.sysfs_root, s.proc_root)
        except CaptureError:
            raise
        except Unusable as error:
            self._voice.bad(f"{error}; looking again every {s.survey_every_s:g} s")
            if known.gpus:
                return health.blind(known, str(error))
            return survey(Machine(NvmlFacts(), sysfs.read(s.sysfs_root), host.read(s.proc_root)))
        self._minors.update({gpu.uuid: gpu.minor for gpu in machine.nvml.gpus})
        seen = survey(machine)
        self._voice.good(f"{len(seen.gpus)} GPUs, {len(seen.hcas)} network cards")
        return health.judge(known, seen)

    def _device_nodes(self, uuids: Sequence[str]) -> tuple[str, ...]:
        return devicenodes.paths(uuids, self._minors, self._files_policy(), self._settings.dev_root)

    def _card_nodes(self, cards: Sequence[Hca]) -> tuple[str, ...]:
        names = [card.uverbs for card in cards if card.uverbs]
        return devicenodes.cards(names, self._files_policy(), self._settings.dev_root)

    def _files_policy(self) -> str:
        # The files here are not those of the machine in a capture.
        return "never" if self._settings.capture else self._settings.pass_device_nodes
