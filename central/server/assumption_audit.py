"""Compares what the scheduler assumes with the API server, where the watch does not show it in time.

A binding or an eviction counts from the moment of its decision. Its answer and the watch confirm it within a
second or two. If they do not, either the watch is late, or an answer was lost or wrong, and the scheduler
would believe it for ever. So each assumption older than OLD_S, without a request under way, is read from the
API server: one that does not hold is given up, and for one that holds the pods are listed again.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write import pod_requests
from central.kube.write.pod_requests import Refused
from central.kube.write.retrying import Retry
from central.model.decisions import Bind
from central.model.facts import BindFailed, EvictDone, Fact
from central.scheduler.scheduler import Scheduler
from central.server.rounds import Rounds
from central.server.stats.sliced_question import FactLoop

log = logging.getLogger(__name__)

EVERY_S = 10.0
OLD_S = 30.0
APART_S = 0.1  # between two reads
READS_MOST = 50  # in one round
HOLDS, WRONG, UNREADABLE = "holds", "wrong", "unreadable"


class Assumption(NamedTuple):
    """A binding that the watch does not show yet, or with leaving an eviction."""

    uid: str
    namespace: str
    name: str
    node: str
    leaving: bool


class PodTickets(Protocol):
    def is_open(self, uid: str) -> bool: ...


class AssumptionAudit(Rounds):
    """list_again: has the pods listed again, because their watch is late or has lost something."""

    def __init__(
        self,
        client: Client,
        loop: FactLoop,
        tickets: PodTickets,
        list_again: Callable[[], None],
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._client, self._loop, self._tickets = client, loop, tickets
        self._list_again = list_again
        self._runtime = runtime
        self._since: dict[Assumption, float] = {}
        self._outcomes: Counter[str] = Counter({HOLDS: 0, WRONG: 0, UNREADABLE: 0})
        super().__init__("assumption-audit", every_s=EVERY_S, runtime=runtime)

    @property
    def old(self) -> int:
        """Assumptions that are older than OLD_S."""
        now = self._runtime.monotonic()
        return sum(now - since >= OLD_S for since in list(self._since.values()))

    @property
    def outcomes(self) -> dict[str, int]:
        """Reads of the API server so far: the assumption held, was wrong, or could not be read."""
        return dict(self._outcomes)

    def check(self) -> None:
        now = self._runtime.monotonic()
        found = self._loop.ask(assumptions_of)
        self._since = {each: self._since.get(each, now) for each in found}
        old = [each for each, since in self._since.items() if now - since >= OLD_S]
        outcomes = [self._audit(each) for each in old[:READS_MOST]]
        if {HOLDS, WRONG} & set(outcomes):
            self._list_again()

    def _audit(self, assumption: Assumption) -> str:
        if self._tickets.is_open(assumption.uid):
            return ""
        self._runtime.sleep(APART_S)
        try:
            fact = self._read(assumption)
        except (Retry, Refused) as error:
            log.warning("could not read pod %s: %s", _name(assumption), error)
            self._outcomes[UNREADABLE] += 1
            return UNREADABLE
        outcome = HOLDS if fact is None else WRONG
        if fact is not None and not self._loop.ask(lambda it: self._correct(it, assumption, fact)):
            return ""  # it has changed meanwhile
        self._outcomes[outcome] += 1
        what = "the eviction of" if assumption.leaving else "the binding of"
        if fact is None:
            log.warning(
                "%s pod %s is %.0f s old, and the watch does not show it: listing pods again",
                what, _name(assumption), OLD_S,
            )  # fmt: skip
        else:
            log.error("%s pod %s was assumed and is not so: %s", what, _name(assumption), fact.why)
        return outcome

    def _read(self, assumption: Assumption) -> BindFailed | EvictDone | None:
        """The fact that corrects the assumption; None: it holds. Raises Retry, Refused."""
        uid, namespace, name, node, leaving = assumption
        if leaving:
            pod = pod_requests.read_pod(self._client, namespace, name, uid)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return None
            return EvictDone(uid, f"nothing evicted it within {OLD_S:.0f} s", unknown=True)
        why = f"nothing bound it within {OLD_S:.0f} s"
        settled = pod_requests.settle(self._client, Bind(uid, namespace, name, node), why)
        return settled if isinstance(settled, BindFailed) else None

    def _correct(self, scheduler: Scheduler, assumption: Assumption, fact: Fact) -> bool:
        """Corrects the assumption in the loop's thread, unless a later decision has replaced it."""
        if assumption not in assumptions_of(scheduler) or self._tickets.is_open(assumption.uid):
            return False
        self._loop.put(fact)
        return True


def assumptions_of(scheduler: Scheduler) -> list[Assumption]:
    """Bindings and evictions that no fact of the watch confirms yet."""
    return [
        Assumption(pod.seen.uid, pod.seen.namespace, pod.seen.name, pod.node, not pod.assumed)
        for pod in scheduler.state.pods.values()
        if pod.assumed or (pod.evicting and not pod.seen.deleting)
    ]


def _name(assumption: Assumption) -> str:
    return f"{assumption.namespace}/{assumption.name}"
