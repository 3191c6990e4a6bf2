"""`lockstep central`: builds the scheduler process from its parts and runs it. Only this module knows
all of them."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple, Protocol

import grpc.aio

from central.kube.decode import api_kinds
from central.kube.decode.api_kinds import Kind
from central.kube.decode.decoder import Decoder
from central.kube.transport.access_review import AccessReviewer
from central.kube.transport.http_client import Client, connect
from central.kube.transport.running_volcano import running_volcano
from central.kube.transport.token_review import TokenReviewer
from central.kube.write import default_queue
from central.model.decisions import SCHEDULER_ADDRESS, SCHEDULER_CA, Decision
from central.model.facts import Fact, NodeGone
from central.model.json_types import Json
from central.scheduler.scheduler import Scheduler
from central.server import tls
from central.server.console import serve_console, what_if_process
from central.server.first_answers import Stopping, answered, current_credentials, first_credentials
from central.server.gpu_uses import GpuUses
from central.server.grpc.agent_service import AgentService
from central.server.grpc.auth import Authenticator
from central.server.grpc.grpc_server import CannotStart, Server, serve
from central.server.grpc.plans import PlannedDevices
from central.server.grpc.query_service import QueryService
from central.server.grpc.replica_service import ReplicaService
from central.server.grpc.training_plans import PlanPublisher, TrainingPlans
from central.server.grpc.training_service import TrainingService
from central.server.grpc.training_states import TrainingStates
from central.server.history.allocations import AllocationLog
from central.server.history.gang_records import GangRecords
from central.server.history.history_pages import HistoryPages
from central.server.history.history_store import HistoryStore
from central.server.history.past_cluster import PastCluster
from central.server.history.recorder import HistoryRecorder
from central.server.history.usage_report import AllocationReports
from central.server.journal import Journal
from central.server.leader_election import LeaderElection
from central.server.leader_parts import LeaderParts, Ready
from central.server.loop import Loop
from central.server.metrics import Metrics
from central.server.node_marker import MarkerOptions, NodeMarker
from central.server.optional_part import PartUnusable, begin_optional
from central.server.otlp_endpoint import endpoint
from central.server.podgroup_mirror import PodGroupMirror
from central.server.queries import ClusterQueries
from central.server.queue_metrics import QueueLabels, QueueMetrics
from central.server.scheduler_of_settings import scheduler_of
from central.server.settings import Settings
from central.server.standby_history import StandbyHistory
from central.server.stats.gang_counters import GangCounters
from central.server.stats.surveyor import Surveyor
from central.server.throttled_log import ThrottledLog
from central.server.tracing.gang_stages import GangStages
from central.server.usage_store import UsageStore
from central.server.web.record_api import RecordApi
from central.server.web.web_api import WebApi
from protos.common.probes import Probes, Unservable

log = logging.getLogger(__name__)
quiet = ThrottledLog(log)


def run(settings: Settings, what_if: Sequence[str] = ()) -> int:
    """Runs the scheduler until SIGTERM or SIGINT. what_if: the command behind the console's what-if, if it offers
    one. Raises http_client.Unusable, CannotStart
    or tls.UnusableCredentials, each with a sentence for the user."""
    stopping = Stopping()
    client = connect(settings.kubeconfig)
    with ExitStack() as stack:
        stack.callback(client.close)
        observed = _observed_loop(settings, client, stack)
        stopping.on_signals(observed.loop.stop)
        credentials = first_credentials(settings, client, stopping)
        if credentials is None:
            return 0
        election = _election(settings, client, observed.metrics, stack)
        kept = StandbyHistory(settings, credentials, observed.metrics)
        if not kept.followed_until(partial(election.acquire, stopping.within)):
            return 0
        leader = _Leader(settings, client, observed, credentials, election, stopping)
        leader.lead(kept.taken_over(), what_if, stack)
    return 1 if election.lost else 0


class _Observed(NamedTuple):
    """The loop, and what goes by its cycles. A standby has it too, for its probes and metrics."""

    loop: Loop
    ready: Ready
    metrics: Metrics
    surveyor: Surveyor
    training: TrainingPlans
    allocations: AllocationLog | None
    records: GangRecords
    uses: GpuUses


def _is_queue(scheduler: Scheduler, name: str) -> bool:
    return scheduler.queues.is_declared(name)


def _observed_loop(settings: Settings, client: Client, stack: ExitStack) -> _Observed:
    """Raises CannotStart."""
    scheduler = scheduler_of(settings)
    ready = Ready(scheduler, settings.agents_wait_s)
    metrics = Metrics(client.counts)
    _serve_probes(settings, metrics, stack)
    journal = _open_journal(settings, scheduler)
    if journal is not None:
        stack.callback(journal.close)
    labels = QueueLabels(settings.metrics_queues, partial(_is_queue, scheduler))
    counters = GangCounters(scheduler, labels.label)
    allocations = AllocationLog(scheduler) if settings.history is not None else None
    uses = GpuUses(settings.idle_below, settings.idle_after_s)
    training = TrainingPlans(labels.label)
    records = GangRecords(scheduler, uses, training.activities)
    metrics.add(training.times.families)
    publisher, traces = (
        PlanPublisher(training, scheduler),
        begin_optional("traces", partial(_trace, settings, scheduler, metrics, stack)),
    )
    optional = [each for each in (allocations, traces) if each is not None]
    observers = [publisher, counters, records, *optional]
    loop = Loop(
        scheduler, ready=ready, journal=journal, on_cycle=partial(_on_cycle, metrics, observers)
    )
    surveyor = Surveyor(loop)
    metrics.watch_loop(loop)
    metrics.watch_queues(surveyor, QueueMetrics(counters, labels, uses))
    return _Observed(loop, ready, metrics, surveyor, training, allocations, records, uses)


def _watched_kinds(settings: Settings) -> tuple[Kind, ...]:
    decoder = Decoder(settings.scheduler_names, settings.topology_levels, settings.pod_groups)
    return api_kinds.kinds(decoder, settings.namespaces, elastic=settings.elastic_controllers)


def _start_writers(
    settings: Settings, client: Client, loop: Loop, election: LeaderElection, stack: ExitStack
) -> None:
    options = MarkerOptions(settings.node_labels, settings.node_condition, settings.node_taint)
    if settings.pod_groups_for_controllers:
        _start(PodGroupMirror(client, loop, may_act=election.may_act), stack)
    _start(NodeMarker(client, loop, options, may_act=election.may_act), stack)
    store = UsageStore(client, loop, settings.namespace, may_act=election.may_act)
    store.restore()
    _start(store, stack)


def _refuse_beside_volcano(settings: Settings, client: Client, stopping: Stopping) -> None:
    """Raises CannotStart."""
    pods = answered(
        lambda: running_volcano(client, AccessReviewer(client)), "list of pods", stopping
    )
    if not pods:
        return
    why = f"Volcano runs on this cluster ({', '.join(pods)}), and both would act on the same Jobs"
    if not settings.beside_volcano:
        raise CannotStart(
            f"{why}: remove its scheduler and controllers, but keep its CRDs "
            "(docs/how-to/migrate-from-volcano.md), or start with --beside-volcano"
        )
    log.warning("%s; started nevertheless (--beside-volcano)", why)


def _election(
    settings: Settings, client: Client, metrics: Metrics, stack: ExitStack
) -> LeaderElection:
    elect, lease_s = settings.leader_elect, settings.lease_s
    election = LeaderElection(
        client, settings.namespace, settings.pod_name, elect=elect, lease_s=lease_s
    )
    metrics.watch_election(election)
    stack.callback(election.release)
    return election


class _Training(NamedTuple):
    plans: TrainingPlans
    term: int  # of this leader


class GrpcServices(NamedTuple):
    agents: AgentService
    plans: PlannedDevices
    authenticator: Authenticator
    adders: list[Callable[[grpc.aio.Server], None]]
    api: WebApi


def _services(
    settings: Settings,
    client: Client,
    observed: _Observed,
    history: HistoryStore | None,
    training: _Training,
) -> GrpcServices:
    loop, plans = observed.loop, PlannedDevices()
    authenticator = Authenticator(TokenReviewer(client, settings.namespace))
    agents = AgentService(loop.put, authenticator, plans, settings.silent_after_s, observed.uses)
    loop.add_source(agents.silent)
    states = TrainingStates(client)
    coordinators = TrainingService(
        loop.put, authenticator, training.plans, training.term, states=states
    )
    loop.add_source(coordinators.silent)
    usage = AllocationReports(history) if history is not None else None
    asked, past = ClusterQueries(loop), PastCluster(history) if history is not None else None
    records = RecordApi(loop, observed.records, past)
    api = WebApi(observed.surveyor, asked, records, past)
    queries = QueryService(
        asked, authenticator, AccessReviewer(client), usage, coordinators.views, pages=api.page
    )
    pages = HistoryPages(history) if history is not None else None
    replicas = ReplicaService(pages, authenticator, settings.namespace)
    adders: list[Callable[[grpc.aio.Server], None]] = [
        replicas.add_to,
        agents.add_to,
        coordinators.add_to,
        queries.add_to,
    ]
    return GrpcServices(agents, plans, authenticator, adders, api)


class _Leader(NamedTuple):
    """The work of the replica that has the lease."""

    settings: Settings
    client: Client
    observed: _Observed
    credentials: tls.Credentials
    election: LeaderElection
    stopping: Stopping

    def lead(self, history: HistoryStore | None, what_if: Sequence[str], stack: ExitStack) -> None:
        """Schedules until the loop is stopped. Raises CannotStart."""
        settings, client, observed = self.settings, self.client, self.observed
        if settings.default_queue:
            default_queue.create_default_queue(client)
        training = _Training(observed.training, self.election.term)
        services = _services(settings, client, observed, history, training)
        server = _serve_grpc(settings, client, self.credentials, services, stack)
        observed.metrics.add(server.proxy.families)
        _refuse_beside_volcano(settings, client, self.stopping)
        if history is not None and observed.allocations is not None:
            loop, surveyor, records = observed.loop, observed.surveyor, observed.records
            records.adopt(history.open_records())
            made = HistoryRecorder(history, observed.allocations, records, loop, surveyor)
            _start(made, stack)
        asked = what_if_process(settings, client, server, what_if)
        serve_console(settings, client, server, services.api, stack, what_if=asked)
        self._schedule(services, stack)

    def _schedule(self, services: GrpcServices, stack: ExitStack) -> None:
        settings, client, observed = self.settings, self.client, self.observed
        loop = observed.loop
        parts = LeaderParts(
            client,
            loop,
            _watched_kinds(settings),
            services.plans,
            observe=partial(_observe, loop, services.agents),
            may_act=self.election.may_act,
            workers=settings.workers,
            for_coordinators=_for_coordinators(settings, self.credentials),
        )
        stack.callback(parts.stop)
        observed.ready.listed = parts.listed
        observed.metrics.watch_watches(parts.watches.problem)
        observed.metrics.add(parts.families)
        _start_writers(settings, client, loop, self.election, stack)
        self.election.start(loop.stop)
        loop.run(parts.executor.submit, services.plans.publish)
        log.info("stopping; running pods keep running")


def _serve_grpc(
    settings: Settings,
    client: Client,
    credentials: tls.Credentials,
    services: GrpcServices,
    stack: ExitStack,
) -> Server:
    server = serve(
        settings.listen,
        credentials,
        services.adders,
        services.authenticator,
        renew=lambda: current_credentials(settings, client),
    )
    stack.callback(server.stop)
    log.info("serving gRPC on port %d; the API server is %s", server.port, client.server)
    return server


def _for_coordinators(settings: Settings, credentials: tls.Credentials) -> Json:
    service = f"{tls.names(settings.namespace)[2]}:{settings.listen.rpartition(':')[2]}"
    return {
        SCHEDULER_ADDRESS: settings.coordinators_connect or service,
        SCHEDULER_CA: credentials.ca.decode(),
    }


def _on_cycle(
    metrics: Metrics,
    observers: Sequence[GangCounters | GangRecords | AllocationLog | PlanPublisher | GangStages],
    facts: Sequence[Fact],
    decisions: Sequence[Decision],
    seconds: float,
) -> None:
    calls: list[Callable[[Sequence[Fact], Sequence[Decision]], None]]
    calls = [partial(metrics.observe_cycle, seconds=seconds), *(each.observe for each in observers)]
    for name, observe in zip(
        ["Metrics", *(type(each).__name__ for each in observers)], calls, strict=True
    ):
        try:
            observe(facts, decisions)
        except Exception as error:  # noqa: BLE001  a bug in what is counted must not stop scheduling
            quiet.error(name, error, "could not count what happened to gangs (bug)")


def _observe(loop: Loop, agents: AgentService, fact: Fact) -> None:
    """Passes each fact of the watches on. The inbox gets NodeGone first, so that a report which arrives in between is
    requested again rather than lost."""
    loop.put(fact)
    if isinstance(fact, NodeGone):
        agents.forget(fact.name)


def _serve_probes(settings: Settings, metrics: Metrics, stack: ExitStack) -> None:
    if not settings.metrics_listen:
        return
    try:
        probes = Probes(
            settings.metrics_listen,
            metrics.registry,
            unhealthy=metrics.unhealthy,
            unready=metrics.unready,
        )
    except Unservable as error:
        raise CannotStart(str(error)) from error
    _start(probes, stack)
    log.info("serving metrics and probes on port %d", probes.port)


def _trace(
    settings: Settings, scheduler: Scheduler, metrics: Metrics, stack: ExitStack
) -> GangStages | None:
    """Sends a trace for each gang if a collector is named. Raises PartUnusable."""
    collector = endpoint(settings.otlp_endpoint, os.environ)
    if collector is None:
        return None
    try:
        from central.server.tracing.trace_exporter import TraceExporter
    except ImportError as error:
        raise PartUnusable(
            f"traces need a package that is not installed ({error.name}): pip install 'lockstep-scheduler[otel]'"
        ) from error
    exporter = TraceExporter(collector)
    stages = GangStages(scheduler, exporter.put)
    metrics.add(exporter.families, stages.families)
    _start(exporter, stack)
    log.info("sending a trace for each gang to %s", collector)
    return stages


class _Part(Protocol):
    """A part that runs in threads of its own beside the loop."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


def _start(part: _Part, stack: ExitStack) -> None:
    part.start()
    stack.callback(part.stop)


def _open_journal(settings: Settings, scheduler: Scheduler) -> Journal | None:
    if settings.journal is None:
        return None
    make = partial(Journal, settings.journal, scheduler, settings.journal_mib << 20)
    return begin_optional(f"--journal {settings.journal}", make)
