"""Decisions -> API calls, many in flight; their outcomes come back to the inbox as facts.

    effects = Effects(client, inbox, gate=intents, workers=32)
    effects.submit(decisions)      # never blocks
    effects.stop()

Bind -> BindDone or BindFailed, Evict -> EvictDone, Tell -> nothing (central.kube.tells),
Create, Delete, SetStatus, Patch -> Answered (central.kube.things).
"""

import logging
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from central.kube.transport.http_client import Client
from central.kube.transport.workers import WorkerPool
from central.kube.write import objects_writer, pod_requests
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

PLAN_WAIT_S = 0.3  # at most so long a bind waits for the agent to have its intents
RETRY_FOR_S = 10.0
VOLUME_RETRY_FOR_S = 180.0  # at most so long a bind waits for its volumes to be made
BACKOFF_S = (0.1, 2.0)  # first, longest
OBJECT_WORKERS = (
    16  # workers beside those that bind, so that ten thousand creations hold up no binding
)

RetriedDecision = Bind | Evict | objects_writer.ObjectDecision
OutcomeFact = BindDone | BindFailed | EvictDone | Answered


class PlanGate(Protocol):
    """central.intents.Intents: holds a bind back until the node's agent knows its intents."""

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None: ...


class DecisionExecutor:
    def __init__(
        self,
        client: Client,
        inbox: Callable[[Fact], None],
        gate: PlanGate,
        workers: int = 32,
        patience_s: float = RETRY_FOR_S,
        *,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_act: false once another centre may decide; then nothing is begun any more."""
        self._client = client
        self._inbox = inbox
        self._gate = gate
        self._patience_s = patience_s
        self._may_act = may_act
        self._pod_pool = WorkerPool("effects", workers)
        self._object_pool = WorkerPool("makers", OBJECT_WORKERS)
        self._evictor = pod_requests.Evictor(client)
        self._volume_binder = VolumeBinder(client)
        self._status_writer = StatusWriter(client, behind=lambda: self._pod_pool.has_backlog)

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Bind():
                    go = self._later(partial(self._bind, decision), decision)
                    if decision.gpus:
                        self._gate.hold(decision.node, PLAN_WAIT_S, partial(self._pod_pool.put, go))
                    else:
                        self._pod_pool.put(go)
                case Evict():
                    self._pod_pool.put(
                        self._later(partial(self._evictor.evict, decision), decision)
                    )
                    if not decision.trial:
                        self._status_writer.evicting(decision)
                case Create() | Delete() | SetStatus() | Patch():
                    ask = partial(objects_writer.execute, self._client, decision)
                    self._object_pool.put(self._later(ask, decision))
                case UpdateGangStatus():
                    self._status_writer.put(decision)
                case EmitWarning():
                    self._status_writer.warn(decision)

    def stop(self) -> None:
        """Finish what is on the wire, forget the rest."""
        self._pod_pool.stop()
        self._object_pool.stop()
        self._status_writer.stop()

    def _bind(self, decision: Bind) -> BindDone | BindFailed:
        if decision.claims and (why := self._volume_binder.bind_volumes(decision)):
            return BindFailed(decision.pod, decision.node, why)
        return pod_requests.bind(self._client, decision)

    def _later(
        self, call: Callable[[], OutcomeFact], decision: RetriedDecision
    ) -> Callable[[], None]:
        patience_s = self._patience_s
        if isinstance(decision, Bind) and decision.claims:
            patience_s = max(patience_s, VOLUME_RETRY_FOR_S)
        return partial(self._try, call, decision, time.monotonic() + patience_s, 0)

    def _try(
        self,
        call: Callable[[], OutcomeFact],
        decision: RetriedDecision,
        deadline: float,
        failures: int,
    ) -> None:
        if not self._may_act():
            return
        try:
            fact = call()
        except pod_requests.Retry as again:
            first, longest = BACKOFF_S
            delay_s = min(longest, first * 2**failures) * random.uniform(0.5, 1.0)
            delay_s = max(delay_s, min(again.after_s, 5.0))
            if time.monotonic() + delay_s < deadline:
                retry = partial(self._try, call, decision, deadline, failures + 1)
                lane = self._pod_pool if isinstance(decision, Bind | Evict) else self._object_pool
                lane.put_later(retry, delay_s)
                return
            fact = _given_up(decision, again.why)
        if isinstance(fact, BindFailed | EvictDone | Answered) and fact.why:
            level = logging.INFO if fact.why == objects_writer.GONE else logging.WARNING
            log.log(level, "%s: %s", _describe(decision), fact.why)
        self._inbox(fact)


def _given_up(decision: RetriedDecision, why: str) -> OutcomeFact:
    match decision:
        case Bind():
            return BindFailed(decision.pod, decision.node, why)
        case Evict():
            return EvictDone(decision.pod, why, decision.trial)
        case _:
            return objects_writer.failed(decision, why)


def _describe(decision: RetriedDecision) -> str:
    match decision:
        case Bind():
            what = f"was not bound to {decision.node}"
        case Evict():
            what = f"was not evicted from {decision.node}"
        case _:
            what = f"({decision.kind}): {type(decision).__name__} was refused"
    return f"{decision.namespace}/{decision.name} {what}"
