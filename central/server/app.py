"""`lockstep central`: builds the scheduler process from its parts and runs it. Only this module knows
all of them."""

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from central.controllers.composite import new_scheduler
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.transport.access_review import AccessReviewer
from central.kube.transport.http_client import Client, StatusError, Unreachable, connect
from central.kube.transport.token_review import TokenReviewer
from central.kube.write import default_queue
from central.model.facts import Fact, NodeGone
from central.scheduler.scheduler import Scheduler
from central.server import tls, tls_secret
from central.server.grpc.agent_service import AgentService
from central.server.grpc.auth import Authenticator
from central.server.grpc.grpc_server import CannotStart, Server, serve
from central.server.grpc.plans import PlannedDevices
from central.server.grpc.query_service import QueryService
from central.server.journal import Journal
from central.server.leader_election import LeaderElection
from central.server.leader_parts import LeaderParts, Ready
from central.server.loop import Loop
from central.server.metrics import Metrics
from central.server.queries import ClusterQueries
from central.server.settings import Settings
from protos.common.probes import Probes, Unservable

log = logging.getLogger(__name__)

RETRY_S = (0.5, 10.0)  # first, longest


def run(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Raises http_client.Unusable, CannotStart or tls.UnusableCredentials,
    each with a sentence for the user."""
    stopping: SimpleQueue[None] = SimpleQueue()
    client = connect(settings.kubeconfig)
    scheduler = new_scheduler(
        settings.topology_levels,
        settings.patience_s,
        settings.half_life_s,
        settings.placement,
        settings.preempt_across,
        min_runtime_s=settings.min_runtime_s,
        reserve_after_s=settings.reserve_after_s,
        reserve_idle=settings.reserve_idle,
    )
    with ExitStack() as stack:
        stack.callback(client.close)
        ready = Ready(scheduler, settings.agents_wait_s)
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
        agents, plans, server = _serve_grpc(settings, client, credentials, loop, stack)
        metrics.watch_connections(server.front)
        reader = Decoder(settings.scheduler_names, settings.topology_levels)
        parts = LeaderParts(
            client,
            loop,
            api_kinds.kinds(reader, settings.namespaces),
            plans,
            observe=partial(_observe, loop, agents),
            may_act=election.may_act,
            workers=settings.workers,
        )
        stack.callback(parts.stop)
        ready.listed = parts.listed
        metrics.watch_api(parts.watches, parts.executor.tickets, parts.audit)
        election.start(loop.stop)
        loop.run(parts.executor.submit, plans.publish)
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
) -> tuple[AgentService, PlannedDevices, Server]:
    plans = PlannedDevices()
    authenticator = Authenticator(TokenReviewer(client, settings.namespace))
    agents = AgentService(loop.put, authenticator, plans, settings.silent_after_s)
    loop.add_source(agents.silent)
    queries = QueryService(ClusterQueries(loop), authenticator, AccessReviewer(client))
    server = serve(
        settings.listen,
        credentials,
        [agents.add_to, queries.add_to],
        authenticator,
        renew=lambda: _credentials(settings, client),
    )
    stack.callback(server.stop)
    log.info("serving gRPC on port %d; the API server is %s", server.port, client.server)
    return agents, plans, server


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
