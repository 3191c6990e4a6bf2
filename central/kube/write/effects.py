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
from central.kube.transport.workers import Lane
from central.kube.write import objects_writer, requests
from central.kube.write.status_writer import Tells
from central.kube.write.volume_binding import Provisioning
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

INTENTS_S = 0.3  # at most so long a bind waits for the agent to have its intents
PATIENCE_S = 10.0
VOLUMES_S = 180.0  # at most so long a bind waits for its volumes to be made
BACKOFF_S = (0.1, 2.0)  # first, longest
MAKERS = 16  # workers beside those that bind, so that ten thousand creations hold up no binding

Asked = Bind | Evict | objects_writer.Thing
Outcome = BindDone | BindFailed | EvictDone | Answered


class Gate(Protocol):
    """central.intents.Intents: holds a bind back until the node's agent knows its intents."""

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None: ...


class Effects:
    def __init__(
        self,
        client: Client,
        inbox: Callable[[Fact], None],
        gate: Gate,
        workers: int = 32,
        patience_s: float = PATIENCE_S,
        *,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_act: false once another centre may decide; then nothing is begun any more."""
        self._client = client
        self._inbox = inbox
        self._gate = gate
        self._patience_s = patience_s
        self._may_act = may_act
        self._lane = Lane("effects", workers)
        self._makers = Lane("makers", MAKERS)
        self._evictions = requests.Evictions(client)
        self._provisioning = Provisioning(client)
        self._tells = Tells(client, behind=lambda: self._lane.behind)

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Bind():
                    go = self._later(partial(self._bind, decision), decision)
                    if decision.gpus:
                        self._gate.hold(decision.node, INTENTS_S, partial(self._lane.put, go))
                    else:
                        self._lane.put(go)
                case Evict():
                    self._lane.put(self._later(partial(self._evictions.evict, decision), decision))
                    if not decision.trial:
                        self._tells.evicting(decision)
                case Create() | Delete() | SetStatus() | Patch():
                    ask = partial(objects_writer.ask, self._client, decision)
                    self._makers.put(self._later(ask, decision))
                case UpdateGangStatus():
                    self._tells.put(decision)
                case EmitWarning():
                    self._tells.warn(decision)

    def stop(self) -> None:
        """Finish what is on the wire, forget the rest."""
        self._lane.stop()
        self._makers.stop()
        self._tells.stop()

    def _bind(self, asked: Bind) -> BindDone | BindFailed:
        if asked.claims and (why := self._provisioning.refusal(asked)):
            return BindFailed(asked.pod, asked.node, why)
        return requests.bind(self._client, asked)

    def _later(self, call: Callable[[], Outcome], asked: Asked) -> Callable[[], None]:
        patience_s = self._patience_s
        if isinstance(asked, Bind) and asked.claims:
            patience_s = max(patience_s, VOLUMES_S)
        return partial(self._try, call, asked, time.monotonic() + patience_s, 0)

    def _try(
        self, call: Callable[[], Outcome], asked: Asked, deadline: float, failures: int
    ) -> None:
        if not self._may_act():
            return
        try:
            fact = call()
        except requests.Again as again:
            first, longest = BACKOFF_S
            delay_s = min(longest, first * 2**failures) * random.uniform(0.5, 1.0)
            delay_s = max(delay_s, min(again.after_s, 5.0))
            if time.monotonic() + delay_s < deadline:
                retry = partial(self._try, call, asked, deadline, failures + 1)
                lane = self._lane if isinstance(asked, Bind | Evict) else self._makers
                lane.put_later(retry, delay_s)
                return
            fact = _given_up(asked, again.why)
        if isinstance(fact, BindFailed | EvictDone | Answered) and fact.why:
            level = logging.INFO if fact.why == objects_writer.GONE else logging.WARNING
            log.log(level, "%s: %s", _refusal(asked), fact.why)
        self._inbox(fact)


def _given_up(asked: Asked, why: str) -> Outcome:
    match asked:
        case Bind():
            return BindFailed(asked.pod, asked.node, why)
        case Evict():
            return EvictDone(asked.pod, why, asked.trial)
        case _:
            return objects_writer.refused(asked, why)


def _refusal(asked: Asked) -> str:
    match asked:
        case Bind():
            what = f"was not bound to {asked.node}"
        case Evict():
            what = f"was not evicted from {asked.node}"
        case _:
            what = f"({asked.kind}): {type(asked).__name__} was refused"
    return f"{asked.namespace}/{asked.name} {what}"
