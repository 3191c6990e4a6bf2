"""`lockstep central`: builds the scheduler process from its parts and runs it. Only this module knows
all of them."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from central.controllers.composite import new_scheduler
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.kube.transport.http_client import Client, StatusError, Unreachable, connect
from central.kube.transport.token_review import TokenReviewer
from central.kube.write import default_queue
from central.kube.write.executor import DecisionExecutor
from central.model.facts import Fact, NodeGone
from central.scheduler.scheduler import Scheduler
from central.server import tls, tls_secret
from central.server.grpc.agent_service import AgentService
from central.server.grpc.grpc_server import CannotStart, serve
from central.server.grpc.plans import PlannedDevices
from central.server.grpc.query_service import QueryService
from central.server.journal import Journal
from central.server.leader_election import LeaderElection
from central.server.loop import Loop
from central.server.metrics import Metrics
from central.server.queries import ClusterQueries
from central.server.settings import Settings
from protos.common.probes import Probes, Unservable
from protos.names import GPU

log = logging.getLogger(__name__)

RETRY_S = (0.5, 10.0)  # first, longest


def run(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Raises http_client.Unusable, CannotStart or tls.UnusableCredentials,
    each with a sentence for the user."""
    stopping: SimpleQueue[None] = SimpleQueue()
    client = connect(settings.kubeconfig)
    scheduler = new_scheduler(
        settings.topology_levels, settings.patience_s, settings.half_life_s, settings.placement
    )
    with ExitStack() as stack:
        stack.callback(client.close)
        ready = _Ready(scheduler, settings.agents_wait_s)
        metrics = Metrics(client.counts)
        _serve_probes(settings, metrics, stack)
        journal = _open_journal(settings, scheduler, stack)
        loop = Loop(scheduler, ready=ready, journal=journal, on_cycle=metrics.observe_cycle)
        metrics.watch_loop(loop)
        _on_signals(stopping, loop.stop)
        credentials = _first_credentials(settings, client, stopping)
        if credentials is None:
            return 0
        election = _election(settings, client, metrics, stack)
        if not election.acquire(partial(_stopped, stopping)):
            return 0
        if settings.default_queue:
            default_queue.create_default_queue(client)
        agents, plans = _serve_grpc(settings, client, credentials, loop, stack)
        reader = Decoder(settings.scheduler_names, settings.topology_levels)
        watches = watch.start(api_kinds.kinds(reader), client, partial(_observe, loop, agents))
        stack.callback(watches.stop)
        ready.listed = lambda: watches.wait_synced(0.0)
        effects = DecisionExecutor(
            client, loop.put, plans, settings.workers, may_act=election.may_act
        )
        stack.callback(effects.stop)
        election.start(loop.stop)
        loop.run(effects.submit, plans.publish)
        log.info("stopping; running pods keep running")
    return 1 if election.lost else 0


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


def _serve_grpc(
    settings: Settings, client: Client, credentials: tls.Credentials, loop: Loop, stack: ExitStack
) -> tuple[AgentService, PlannedDevices]:
    plans = PlannedDevices()
    reviewer = TokenReviewer(client, settings.namespace)
    agents = AgentService(loop.put, reviewer.review_agent, plans, settings.silent_after_s)
    loop.add_source(agents.silent)
    queries = QueryService(ClusterQueries(loop), reviewer.review_user)
    server = serve(
        settings.listen,
        credentials,
        [agents.add_to, queries.add_to],
        renew=lambda: _credentials(settings, client),
    )
    stack.callback(server.stop)
    log.info("serving gRPC on port %d; the API server is %s", server.port, client.server)
    return agents, plans


def _observe(loop: Loop, agents: AgentService, fact: Fact) -> None:
    """For each fact of the watches. The inbox gets NodeGone first, so that a report which arrives in
    between is requested again rather than lost."""
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
    probes.start()
    stack.callback(probes.stop)
    log.info("serving metrics and probes on port %d", probes.port)


def _open_journal(settings: Settings, scheduler: Scheduler, stack: ExitStack) -> Journal | None:
    if settings.journal is None:
        return None
    try:
        journal = Journal(settings.journal, scheduler, settings.journal_mib << 20)
    except OSError as error:
        raise CannotStart(f"--journal {settings.journal}: {error.strerror}") from error
    stack.callback(journal.close)
    return journal


class _Ready:
    """True once every kind is listed, and every GPU node's agent has reported or agents_wait_s are
    over: the scheduler decides only on what it has seen."""

    def __init__(self, scheduler: Scheduler, agents_wait_s: float) -> None:
        self.listed: Callable[[], bool] = lambda: False
        self._scheduler = scheduler
        self._wait_s = agents_wait_s
        self._listed_at: float | None = None

    def __call__(self) -> bool:
        if not self.listed():
            return False
        now = time.monotonic()
        if self._listed_at is None:
            self._listed_at = now
        return now - self._listed_at >= self._wait_s or all(
            node.report is not None
            for node in self._scheduler.state.nodes.values()
            if node.seen is not None and node.seen.allocatable.get(GPU)
        )


def _first_credentials(
    settings: Settings, client: Client, stopping: "SimpleQueue[None]"
) -> tls.Credentials | None:
    """Retries until the API server answers. None: stopped meanwhile."""
    delay, longest = RETRY_S
    while True:
        try:
            credentials = _credentials(settings, client)
            break
        except (Unreachable, StatusError) as error:
            log.warning("no certificate yet: %s; retrying", error)
            if _stopped(stopping, delay):
                return None
            delay = min(longest, 2 * delay)
    if settings.ca_out is not None:
        _write(Path(settings.ca_out), credentials.ca)
    return credentials


def _credentials(settings: Settings, client: Client) -> tls.Credentials:
    """From --tls-dir or from the cluster. Issued if there are none, renewed if they expire soon."""
    now = datetime.now(UTC)
    if settings.tls_dir is not None:
        return tls.from_files(Path(settings.tls_dir), settings.namespace, now)
    return tls_secret.from_cluster(client, settings.namespace, now)


def _write(path: Path, content: bytes) -> None:
    """Atomically, because another process may read the file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise tls.UnusableCredentials(f"--ca-out {path}: {error.strerror}") from error


def _stopped(stopping: "SimpleQueue[None]", within_s: float) -> bool:
    """Whether a signal to end arrives within so many seconds."""
    with contextlib.suppress(Empty):
        stopping.get(timeout=within_s)
        return True
    return False


def _on_signals(stopping: "SimpleQueue[None]", stop: Callable[[], None]) -> None:
    """The handler takes no lock, because the thread that it interrupts may hold it."""

    def handle(*_: object) -> None:
        stopping.put(None)
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
