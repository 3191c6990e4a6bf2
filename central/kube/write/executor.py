"""Runs decisions as requests to the API server, many at once; their outcomes go to the inbox as facts.

    executor = DecisionExecutor(client, inbox, gate, workers=32)
    executor.submit(decisions)     # never blocks
    executor.stop()

    Bind                             -> BindDone or BindFailed
    Evict                            -> EvictDone
    Create, Delete, SetStatus, Patch, SetSize -> Answered
    UpdateGangStatus, EmitWarning    -> no fact (status_writer.py)

Every decision with a fact is a ticket, which is answered exactly once (tickets.py). The outcome of a request is
success, a refusal, or unknown: no answer, an error of the server, an answer that makes no sense, or a bug here.
Unknown outcomes are repeated with exponential backoff until RETRY_FOR_S. A binding that did not succeed is not
given up on that alone: its pod is read, until the API server says what it is.

Design: docs/design/api-server.md
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.transport.workers import WorkerPool
from central.kube.write import objects_writer, pod_requests
from central.kube.write.device_claim_writer import DeviceClaimWriter
from central.kube.write.pod_requests import Refused
from central.kube.write.retrying import Retry
from central.kube.write.status_writer import StatusWriter
from central.kube.write.tickets import ApiDecision, OutcomeFact, Ticket, Tickets
from central.kube.write.volume_binding import VolumeBinder
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetSize,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Answered, BindDone, BindFailed, EvictDone, Fact

log = logging.getLogger(__name__)

PLAN_WAIT_S = 0.3  # how long a binding waits at most for the agent to have the planned devices
RETRY_FOR_S = 10.0
VOLUME_RETRY_FOR_S = 180.0  # while volumes are provisioned
BACKOFF_S = (0.1, 2.0)  # first, longest
SETTLING_S = 5.0  # longest time between two reads of a pod whose binding has an unknown outcome
BUGS_MOST = 3  # reads of a pod that raise; then its binding counts as failed
RELEASES_MOST = 4  # attempts to release the device claims of a pod that was not bound
RELEASE_AGAIN_S = 1.0
NOT_SENT = "not sent: this replica does not hold the lease"
# Of annotations of pods, apart from all others: they are of use, and nothing may wait for them.
ANNOTATION_WORKERS = 2
OBJECT_WORKERS = 16  # apart from those of pods, so that ten thousand creations delay no binding


class PlanGate(Protocol):
    """Holds a binding back until the node's agent has its planned devices (central.server.grpc.plans)."""

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None: ...


class DecisionExecutor:
    def __init__(
        self,
        client: Client,
        inbox: Callable[[Fact], None],
        gate: PlanGate,
        workers: int = 32,
        retry_for_s: float = RETRY_FOR_S,
        *,
        may_act: Callable[[], bool] = lambda: True,
        for_coordinators: Mapping[str, str] = MappingProxyType({}),
        runtime: Runtime = RUNTIME,
    ) -> None:
        """may_act: false as soon as another replica may be the leader; then no request is begun.
        for_coordinators: entries of the Secrets of coordinators."""
        self._for_coordinators = for_coordinators
        self.tickets = Tickets(inbox, runtime)
        self._client = client
        self._runtime = runtime
        self._gate = gate
        self._retry_for_s = retry_for_s
        self._may_act = may_act
        self._pod_pool = WorkerPool("pod-writes", workers, runtime)
        self._object_pool = WorkerPool("object-writes", OBJECT_WORKERS, runtime)
        self._annotation_pool = WorkerPool("annotations", ANNOTATION_WORKERS, runtime)
        self._evictor = pod_requests.Evictor(client, runtime.time)
        self._volume_binder = VolumeBinder(client)
        self._device_claim_writer = DeviceClaimWriter(client)
        self._status_writer = StatusWriter(
            client,
            bindings_wait=lambda: self._pod_pool.has_backlog,
            may_act=may_act,
            runtime=runtime,
        )

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Bind():
                    go = partial(self._pod_pool.put, self._work_item(decision))
                    if decision.gpus:
                        self._gate.hold(decision.node, PLAN_WAIT_S, go)
                    else:
                        go()
                case Evict():
                    self._pod_pool.put(self._work_item(decision))
                    if not decision.trial:
                        self._status_writer.evicting(decision)
                case Create() | Delete() | SetStatus() | Patch() | SetSize():
                    self._pool(decision).put(self._work_item(decision))
                case UpdateGangStatus():
                    self._status_writer.put(decision)
                case EmitWarning():
                    self._status_writer.warn(decision)

    def stop(self) -> None:
        """Finishes the requests that are under way and drops the others: with the process, what it
        believed of them ends, too."""
        self._pod_pool.stop()
        self._object_pool.stop()
        self._annotation_pool.stop()
        self._status_writer.stop()

    def _pool(self, decision: Decision) -> WorkerPool:
        match decision:
            case Bind() | Evict():
                return self._pod_pool
            case Patch(kind="Pod"):
                return self._annotation_pool
            case _:
                return self._object_pool

    def _work_item(self, decision: ApiDecision) -> Callable[[], None]:
        retry_for_s = self._retry_for_s
        if isinstance(decision, Bind) and decision.claims:
            retry_for_s = max(retry_for_s, VOLUME_RETRY_FOR_S)
        return partial(self._work, self.tickets.issue(decision, retry_for_s))

    def _work(self, ticket: Ticket) -> None:
        """Answers the ticket, or sees to it that another attempt follows."""
        try:
            fact = self._attempt(ticket)
        except Refused as refused:
            self._give_up(ticket, str(refused), known=True)
        except Retry as error:
            self._postpone(ticket, error)
        except Exception as error:
            log.exception("%s: unhandled exception (bug)", _describe(ticket.decision))
            if ticket.settling and ticket.failures >= BUGS_MOST:
                self._give_up(ticket, "", known=False)
            else:
                self._postpone(ticket, Retry(f"{type(error).__name__}: {error}"))
        else:
            self._answer(ticket, fact)

    def _attempt(self, ticket: Ticket) -> OutcomeFact:
        """Raises Retry, Refused."""
        decision = ticket.decision
        if isinstance(decision, Bind) and ticket.settling:
            return pod_requests.settle(self._client, decision, ticket.settling)
        if not self._may_act():
            ticket.deadline = 0.0
            raise Retry(NOT_SENT)
        match decision:
            case Bind():
                return self._bind(decision)
            case Evict():
                return self._evictor.evict(decision)
            case _:
                return objects_writer.execute(self._client, decision, self._for_coordinators)

    def _bind(self, decision: Bind) -> BindDone | BindFailed:
        if decision.claims and (why := self._volume_binder.bind_volumes(decision)):
            raise Refused(why)
        if decision.device_claims and (why := self._device_claim_writer.allocate(decision)):
            raise Refused(why)
        return pod_requests.bind(self._client, decision)

    def _postpone(self, ticket: Ticket, error: Retry) -> None:
        first, longest = (BACKOFF_S[0], SETTLING_S) if ticket.settling else BACKOFF_S
        delay_s = min(longest, first * 2 ** min(ticket.failures, 10)) * self._runtime.uniform(
            0.5, 1.0
        )
        delay_s = max(delay_s, min(error.after_s, 5.0))
        ticket.failures += 1
        if error.within_s:
            ticket.deadline = max(ticket.deadline, ticket.issued_at + error.within_s)
        if ticket.settling:
            if ticket.failures % 16 == 1:  # at first, and then about once a minute
                log.warning("%s: %s; reading the pod again", _describe(ticket.decision), error.why)
        elif self._runtime.monotonic() + delay_s >= ticket.deadline:
            self._give_up(ticket, error.why, known=False)
            return
        self._pool(ticket.decision).put_later(partial(self._work, ticket), delay_s)

    def _give_up(self, ticket: Ticket, why: str, *, known: bool) -> None:
        """known: the API server refused it, or refuses to show the pod; else the outcome is unknown."""
        decision = ticket.decision
        match decision:
            case Bind() if ticket.settling:
                self._answer(ticket, BindFailed(decision.pod, decision.node, ticket.settling))
            case Bind():
                ticket.settling, ticket.failures = why, 0
                self._work(ticket)
            case Evict():
                unknown = EvictDone(decision.pod, why, decision.trial, unknown=not known)
                self._answer(ticket, unknown)
            case _:
                self._answer(ticket, objects_writer.failed(decision, why))

    def _answer(self, ticket: Ticket, fact: OutcomeFact) -> None:
        if isinstance(fact, BindFailed | EvictDone | Answered) and fact.why:
            level = logging.INFO if fact.why == objects_writer.GONE else logging.WARNING
            log.log(level, "%s: %s", _describe(ticket.decision), fact.why)
        if isinstance(ticket.decision, Bind):
            self._volume_binder.forget(ticket.decision)
        self._deliver(ticket, fact, RELEASES_MOST)

    def _deliver(self, ticket: Ticket, fact: OutcomeFact, releases: int) -> None:
        """Takes back what was written to the device claims of a pod that was not bound before its outcome is told, so
        that no later binding of the pod relies on it. releases: attempts that are left."""
        bind = ticket.decision
        if isinstance(bind, Bind) and isinstance(fact, BindFailed) and bind.device_claims:
            try:
                if self._may_act():
                    self._device_claim_writer.release(bind)
            except Exception as error:  # noqa: BLE001  a bug there must not keep the outcome
                log.warning("could not release the device claims of pod %s: %s", bind.name, error)
                if releases > 1:
                    again = partial(self._deliver, ticket, fact, releases - 1)
                    self._pod_pool.put_later(again, RELEASE_AGAIN_S)
                    return
        self.tickets.answer(ticket, fact)


def _describe(decision: ApiDecision) -> str:
    name = f"{decision.namespace}/{decision.name}"
    match decision:
        case Bind():
            return f"could not bind pod {name} to {decision.node}"
        case Evict():
            return f"could not evict pod {name} from {decision.node}"
        case _:
            return f"{type(decision).__name__} of {decision.kind} {name} failed"
