"""`lockstep central`: builds the centre from its parts and runs it. The only place that knows all of
them."""

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

from central.kube.decode import api_kinds
from central.kube.decode.decoder import Reader
from central.kube.transport import watch
from central.kube.transport.http_client import Client, Refused, Unreachable, Unusable, connect
from central.kube.transport.token_review import Reviewer
from central.kube.write import default_queue
from central.kube.write.effects import Effects
from central.model.facts import Fact, NodeGone
from central.scheduler.state.cluster import Cluster
from central.server import tls, tls_secret
from central.server.grpc import grpc_server
from central.server.grpc.agent_service import Intake
from central.server.grpc.plans import Intents
from central.server.grpc.query_service import Desk
from central.server.journal import Journal
from central.server.leader_election import Leading
from central.server.loop import Loop
from central.server.metrics import Status
from central.server.queries import ClusterBooks
from central.server.settings import Settings
from protos.names import GPU
from protos.probes import Probes, Unservable

log = logging.getLogger(__name__)

RETRY_S = (0.5, 10.0)  # first, longest


def run(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Raises client.Unusable, serving.Unusable or tls.Unreadable, each
    with a sentence for the user."""
    stopping: SimpleQueue[None] = SimpleQueue()
    client = connect(settings.kubeconfig)
    cluster = Cluster(
        settings.topology_levels, settings.patience_s, settings.half_life_s, settings.placement
    )
    with ExitStack() as stack:
        stack.callback(client.close)
        ready = _Ready(cluster, settings.agents_wait_s)
        status = Status(client.counts)
        _serve_probes(settings, status, stack)
        journal = _journal(settings, cluster, stack)
        loop = Loop(cluster, ready=ready, journal=journal, meter=status)
        status.watch(loop)
        _on_signals(stopping, loop.stop)
        credentials = _first_credentials(settings, client, stopping)
        if credentials is None:
            return 0
        leading = Leading(
            client,
            settings.namespace,
            settings.pod_name,
            elect=settings.leader_elect,
            lease_s=settings.lease_s,
        )
        status.stands_by(leading)
        stack.callback(leading.leave)
        if not leading.win(partial(_stopped, stopping)):
            return 0
        if settings.default_queue:
            default_queue.make(client)
        reviewer = Reviewer(client, settings.namespace)
        intents = Intents()
        intake = Intake(loop.put, reviewer.agent, intents, settings.silent_after_s)
        loop.listen(intake.silent)
        desk = Desk(ClusterBooks(loop), reviewer.user)
        server = grpc_server.serve(
            settings.listen,
            credentials,
            [intake.add_to, desk.add_to],
            renew=lambda: _credentials(settings, client),
        )
        stack.callback(server.stop)
        log.info(
            "agents and users are served on port %d; the API is %s", server.port, client.server
        )
        reader = Reader(settings.scheduler_names, settings.topology_levels)
        watches = watch.start(api_kinds.kinds(reader), client, partial(_seen, loop, intake))
        stack.callback(watches.stop)
        ready.listed = lambda: watches.wait_synced(0.0)
        effects = Effects(client, loop.put, intents, settings.workers, may_act=leading.may_act)
        stack.callback(effects.stop)
        leading.keep(loop.stop)
        loop.run(effects, intents)
        log.info("stopping: what runs keeps running")
    return 1 if leading.lost else 0


def _seen(loop: Loop, intake: Intake, fact: Fact) -> None:
    """Of the watches. In this order: what an agent tells in between is told again rather than lost."""
    loop.put(fact)
    if isinstance(fact, NodeGone):
        intake.forget(fact.name)


def _serve_probes(settings: Settings, status: Status, stack: ExitStack) -> None:
    if not settings.metrics_listen:
        return
    try:
        probes = Probes(
            settings.metrics_listen,
            status.registry,
            unhealthy=status.unhealthy,
            unready=status.unready,
        )
    except Unservable as error:
        raise Unusable(str(error)) from error
    probes.start()
    stack.callback(probes.stop)
    log.info("metrics and probes are served on port %d", probes.port)


def _journal(settings: Settings, cluster: Cluster, stack: ExitStack) -> Journal | None:
    if settings.journal is None:
        return None
    try:
        journal = Journal(settings.journal, cluster, settings.journal_mib << 20)
    except OSError as error:
        raise Unusable(f"--journal {settings.journal}: {error.strerror}") from error
    stack.callback(journal.close)
    return journal


class _Ready:
    """Decide only what has been seen: every kind is listed, and the agents have had time to speak."""

    def __init__(self, cluster: Cluster, agents_wait_s: float) -> None:
        self.listed: Callable[[], bool] = lambda: False
        self._cluster = cluster
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
            for node in self._cluster.nodes.values()
            if node.seen is not None and node.seen.allocatable.get(GPU)
        )


def _first_credentials(
    settings: Settings, client: Client, stopping: "SimpleQueue[None]"
) -> tls.Credentials | None:
    """However long the API server takes; None: stopped meanwhile."""
    delay, longest = RETRY_S
    while True:
        try:
            credentials = _credentials(settings, client)
            break
        except (Unreachable, Refused) as error:
            log.warning("no certificate yet, trying again: %s", error)
            if _stopped(stopping, delay):
                return None
            delay = min(longest, 2 * delay)
    if settings.ca_out is not None:
        _write(Path(settings.ca_out), credentials.ca)
    return credentials


def _credentials(settings: Settings, client: Client) -> tls.Credentials:
    """From files or from the cluster; made, or renewed where the old ones end soon."""
    now = datetime.now(UTC)
    if settings.tls_dir is not None:
        return tls.from_files(Path(settings.tls_dir), settings.namespace, now)
    return tls_secret.from_cluster(client, settings.namespace, now)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: somebody may be reading it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise tls.Unreadable(f"--ca-out {path}: {error.strerror}") from error


def _stopped(stopping: "SimpleQueue[None]", within_s: float) -> bool:
    """Waits so long for the signal to end."""
    with contextlib.suppress(Empty):
        stopping.get(timeout=within_s)
        return True
    return False


def _on_signals(stopping: "SimpleQueue[None]", stop: Callable[[], None]) -> None:
    """Nothing here takes a lock: the thread that the signal stopped may hold it."""

    def handle(*_: object) -> None:
        stopping.put(None)
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
