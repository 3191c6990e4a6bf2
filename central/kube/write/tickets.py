"""Decisions that the executor has not answered yet. Each is a ticket, which is answered exactly once.

tickets = Tickets(inbox)
ticket = tickets.issue(decision, deadline)
tickets.answer(ticket, fact)     # the fact goes to the inbox; a second answer is dropped and logged
"""

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write.objects_writer import ObjectDecision
from central.model.decisions import Bind, Evict
from central.model.facts import Answered, BindDone, BindFailed, EvictDone

log = logging.getLogger(__name__)

ApiDecision = Bind | Evict | ObjectDecision
OutcomeFact = BindDone | BindFailed | EvictDone | Answered


@dataclass(slots=True)
class Ticket:
    number: int
    decision: ApiDecision
    issued_at: float
    deadline: float  # repeated until then
    failures: int = 0
    # Of a binding that did not succeed: why. From then on its pod is only read, and what the API server
    # says of it is the answer.
    settling: str = field(default="")


class Tickets:
    def __init__(self, inbox: Callable[[OutcomeFact], None], runtime: Runtime = RUNTIME) -> None:
        self._inbox = inbox
        self._runtime = runtime
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, Ticket] = {}
        self._pods: dict[str, int] = {}  # open tickets of bindings and evictions, by uid

    def issue(self, decision: ApiDecision, retry_for_s: float) -> Ticket:
        now = self._runtime.monotonic()
        ticket = Ticket(next(self._numbers), decision, now, now + retry_for_s)
        with self._lock:
            self._open[ticket.number] = ticket
            if isinstance(decision, Bind | Evict):
                self._pods[decision.pod] = self._pods.get(decision.pod, 0) + 1
        return ticket

    def answer(self, ticket: Ticket, fact: OutcomeFact) -> None:
        with self._lock:
            known = self._open.pop(ticket.number, None)
        if known is None:
            log.error("a second answer to %s: %s; this is a bug", ticket.decision, fact)
            return
        self._inbox(fact)  # before the pod counts as answered: the auditor asks in that order
        if isinstance(ticket.decision, Bind | Evict):
            uid = ticket.decision.pod
            with self._lock:
                left = self._pods.pop(uid) - 1
                if left:
                    self._pods[uid] = left

    def is_open(self, uid: str) -> bool:
        """Returns whether a binding or an eviction of the pod is unanswered."""
        with self._lock:
            return uid in self._pods

    def open_count(self) -> int:
        with self._lock:
            return len(self._open)

    def oldest_s(self) -> float:
        """Age of the oldest ticket without an answer, in seconds; 0: there is none."""
        with self._lock:
            oldest = min((ticket.issued_at for ticket in self._open.values()), default=None)
        return 0.0 if oldest is None else self._runtime.monotonic() - oldest
