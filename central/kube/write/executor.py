"""Runs decisions as requests to the API server, many at once; their outcomes go to the inbox as facts.

    executor = DecisionExecutor(client, inbox, gate, workers=32)
    executor.submit(decisions)     # never blocks
    executor.stop()

    Bind                             -> BindDone or BindFailed
    Evict                            -> EvictDone
    Create, Delete, SetStatus, Patch -> Answered
    UpdateGangStatus, EmitWarning    -> no fact (status_writer.py)

Temporary failures are repeated with exponential backoff until RETRY_FOR_S. The scheduler hears of the
last one only.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from central.kube.transport.http_client import Client
from central.kube.transport.workers import WorkerPool, WorkItem
from central.kube.write import objects_writer, pod_requests
from central.kube.write.retrying import Retry
from central.kube.write.status_writer import StatusWriter
from central.kube.write.volume_binding import VolumeBinder
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Answered, BindDone, BindFailed, EvictDone, Fact

log = logging.getLogger(__name__)

PLAN_WAIT_S = 0.3  # how long a binding waits at most for the agent to have the planned devices
RETRY_FOR_S = 10.0
VOLUME_RETRY_FOR_S = 180.0  # while volumes are provisioned
BACKOFF_S = (0.1, 2.0)  # first, longest
OBJECT_WORKERS = 16  # apart from those of pods, so that ten thousand creations delay no binding

ApiDecision = Bind | Evict | objects_writer.ObjectDecision
OutcomeFact = BindDone | BindFailed | EvictDone | Answered


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
    ) -> None:
        """may_act: false as soon as another replica may be the leader; then no request is begun."""
        self._client = client
        self._inbox = inbox
        self._gate = gate
        self._retry_for_s = retry_for_s
        self._may_act = may_act
        self._pod_pool = WorkerPool("pod-writes", workers)
        self._object_pool = WorkerPool("object-writes", OBJECT_WORKERS)
        self._evictor = pod_requests.Evictor(client)
        self._volume_binder = VolumeBinder(client)
        self._status_writer = StatusWriter(client, bindings_wait=lambda: self._pod_pool.has_backlog)

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Bind():
                    item = self._work_item(partial(self._bind, decision), decision)
                    go = partial(self._pod_pool.put, item)
                    if decision.gpus:
                        self._gate.hold(decision.node, PLAN_WAIT_S, go)
                    else:
                        go()
                case Evict():
                    evict = partial(self._evictor.evict, decision)
                    self._pod_pool.put(self._work_item(evict, decision))
                    if not decision.trial:
                        self._status_writer.evicting(decision)
                case Create() | Delete() | SetStatus() | Patch():
                    execute = partial(objects_writer.execute, self._client, decision)
                    self._object_pool.put(self._work_item(execute, decision))
                case UpdateGangStatus():
                    self._status_writer.put(decision)
                case EmitWarning():
                    self._status_writer.warn(decision)

    def stop(self) -> None:
        """Finishes the requests that are under way and drops the others."""
        self._pod_pool.stop()
        self._object_pool.stop()
        self._status_writer.stop()

    def _bind(self, decision: Bind) -> BindDone | BindFailed:
        if decision.claims and (why := self._volume_binder.bind_volumes(decision)):
            return BindFailed(decision.pod, decision.node, why)
        return pod_requests.bind(self._client, decision)

    def _work_item(self, call: Callable[[], OutcomeFact], decision: ApiDecision) -> WorkItem:
        retry_for_s = self._retry_for_s
        if isinstance(decision, Bind) and decision.claims:
            retry_for_s = max(retry_for_s, VOLUME_RETRY_FOR_S)
        return partial(self._try, call, decision, time.monotonic() + retry_for_s, 0)

    def _try(
        self, call: Callable[[], OutcomeFact], decision: ApiDecision, deadline: float, failures: int
    ) -> None:
        if not self._may_act():
            return
        try:
            fact = call()
        except Retry as error:
            first, longest = BACKOFF_S
            delay_s = min(longest, first * 2**failures) * random.uniform(0.5, 1.0)
            delay_s = max(delay_s, min(error.after_s, 5.0))
            if time.monotonic() + delay_s < deadline:
                again = partial(self._try, call, decision, deadline, failures + 1)
                pool = self._pod_pool if isinstance(decision, Bind | Evict) else self._object_pool
                pool.put_later(again, delay_s)
                return
            fact = _failure(decision, error.why)
        if isinstance(fact, BindFailed | EvictDone | Answered) and fact.why:
            level = logging.INFO if fact.why == objects_writer.GONE else logging.WARNING
            log.log(level, "%s: %s", _describe(decision), fact.why)
        self._inbox(fact)


def _failure(decision: ApiDecision, why: str) -> OutcomeFact:
    match decision:
        case Bind():
            return BindFailed(decision.pod, decision.node, why)
        case Evict():
            return EvictDone(decision.pod, why, decision.trial)
        case _:
            return objects_writer.failed(decision, why)


def _describe(decision: ApiDecision) -> str:
    name = f"{decision.namespace}/{decision.name}"
    match decision:
        case Bind():
            return f"could not bind pod {name} to {decision.node}"
        case Evict():
            return f"could not evict pod {name} from {decision.node}"
        case _:
            return f"{type(decision).__name__} of {decision.kind} {name} failed"
