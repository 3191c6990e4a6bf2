"""Two tenants with similar objects in one cluster, and all that the scheduler writes or answers about them.

Whatever a tenant writes has the tenant's mark in it: names, labels, annotations and texts. No mark may be in what the
readers of the other tenant's namespace, or of objects of the cluster, see.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from central.controllers.composite import new_scheduler
from central.kube.decode.fields import MalformedObject
from central.model.decisions import Bind, Create, Decision, Delete, Evict, UpdateGangStatus
from central.model.facts import BindDone, EvictDone, Fact, PodGone
from central.model.identity import Identity
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.grpc.visibility import NAMESPACED, Viewer
from central.server.history.gang_records import GangRecords
from central.server.metrics import Metrics
from central.server.queries import ClusterQueries
from central.server.queue_metrics import QueueLabels, QueueMetrics
from central.server.stats.gang_counters import GangCounters
from central.server.stats.surveyor import Surveyor
from central.server.web.record_api import RecordApi
from central.server.web.web_api import WebApi
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused
from tests.central import factories
from tests.central.poison.by_field.field_check import answer
from tests.central.poison.world import LEVELS, NOW, kinds

Written = tuple[str, Json]  # the watched kind, and the object


class Tenant(NamedTuple):
    name: str

    @property
    def mark(self) -> str:
        return f"zq{self.name}x"

    @property
    def space(self) -> str:
        return f"{self.mark}-space"


RED, BLUE = Tenant("a"), Tenant("b")
TENANTS = (RED, BLUE)


class Said(NamedTuple):
    """namespace: whose readers see the text; empty: everybody."""

    namespace: str
    text: str


class Rights:
    """Each tenant sees its own namespace, and the nodes and queues of the cluster."""

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        own = namespace == identity.user and resource in NAMESPACED
        return own or resource in ("nodes", "queues.scheduling.volcano.sh")


class AtOnce:
    """A loop that answers between two cycles, as server.loop.Loop does."""

    inbox_length, synced, last_cycle_at = 0, True, 0.0

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 0.0) -> Any:
        return question(self._scheduler)


class TwoTenants:
    """policy: of new_scheduler()."""

    def __init__(self, facts: Iterable[Fact], **policy: Any) -> None:
        self.scheduler: Any = new_scheduler(LEVELS, **policy)
        self.now = NOW
        self._made = 0
        self._labels = QueueLabels(exists=self.scheduler.queues.is_declared)
        self._counters = GangCounters(self.scheduler, self._labels.label)
        self._answers: list[Fact] = []
        spaces = [{"metadata": {"name": tenant.space}} for tenant in TENANTS]
        self.cycle([*facts, *facts_of(("namespaces", space) for space in spaces)])

    def cycle(self, facts: Iterable[Fact] = (), after_s: float = 1.0) -> list[Said]:
        """One more, in which the API server agrees to what the last one decided. Returns what it says."""
        self.now += after_s
        facts = [*self._answers, *facts]
        decisions = schedule_once(self.scheduler, facts, self.now)
        self._counters.observe(facts, decisions)
        aside = [each.why for each in self.scheduler.quarantine.set_asides.values()]
        assert not aside, aside[0]
        self._answers = [fact for each in decisions for fact in self._answer(each)]
        return [said for each in decisions for said in said_by(each)]

    def _answer(self, decision: Decision) -> Iterator[Fact]:
        match decision:
            case Bind():
                yield BindDone(decision.pod, decision.node)
                seen = self.scheduler.state.pods[decision.pod].seen
                part = seen.part and replace(seen.part, ready=True)
                yield replace(
                    seen, node=decision.node, phase="Running", started=self.now, part=part
                )
            case Evict():
                yield EvictDone(decision.pod, trial=decision.trial)
                if not decision.trial:
                    yield PodGone(decision.pod)
            case Create():
                yield answer(decision)
                yield from self._created(decision)
            case Delete() if decision.kind == "Pod":
                yield answer(decision)
                yield PodGone(decision.uid)
            case _:
                yield answer(decision)

    def _created(self, decision: Create) -> Iterator[Fact]:
        kind = {"Pod": "pods", "PodGroup": "podgroups.scheduling.volcano.sh", "Job": "jobs.batch.volcano.sh"}  # fmt: skip
        if decision.kind in kind:
            self._made += 1
            raw = json.loads(json.dumps(decision.body))
            raw["metadata"] |= {"namespace": decision.namespace, "name": decision.name}
            raw["metadata"]["uid"] = f"made-{self._made}"
            raw.setdefault("status", {"phase": "Pending"} if decision.kind == "Pod" else {})
            yield from facts_of([(kind[decision.kind], raw)])

    # --- what it answers -----------------------------------------------------------------

    def _serve(self) -> None:
        """Of the cluster as it is now: surveys are kept for a while."""
        loop: Any = AtOnce(self.scheduler)
        surveyor = Surveyor(loop)
        self._queries = ClusterQueries(loop)
        self._api = WebApi(
            surveyor, self._queries, RecordApi(loop, GangRecords(self.scheduler), None)
        )
        self._metrics = Metrics(dict)
        self._metrics.watch_loop(loop)
        self._metrics.watch_queues(surveyor, QueueMetrics(self._counters, self._labels))

    def answers(self) -> Iterator[Said]:
        """Of explain, the console and the metrics, to each tenant."""
        self._serve()
        state = self.scheduler.state
        names = {(gang.namespace, gang.name) for gang in state.gangs.values()}
        names |= {(pod.seen.namespace, pod.seen.name) for pod in state.pods.values()}
        names |= {(gang.namespace, gang.owner) for gang in state.gangs.values() if gang.owner}
        for tenant in TENANTS:
            for namespace, name in sorted(names):
                asked = {"namespace": namespace, "name": name[:253]}
                yield from self._asked(tenant, "/api/gang", asked)
            for path in ("/api/overview", "/api/nodes", "/api/queues", "/api/pending"):
                yield from self._asked(tenant, path, {})
            for node in sorted(state.nodes):
                yield from self._asked(tenant, "/api/node", {"name": node})
            yield from self._explained(tenant)
        for family in text_string_to_metric_families(self._metrics_text()):
            for sample in family.samples:  # series of a Job say whose it is
                yield Said(sample.labels.get("namespace", ""), f"{sample.name} {sample.labels}")

    def _metrics_text(self) -> str:
        return generate_latest(self._metrics.registry).decode()

    def _asked(self, tenant: Tenant, path: str, query: dict[str, str]) -> Iterator[Said]:
        viewer = Viewer(Rights(), Identity(tenant.space))
        try:
            found = self._api.answer(Request(path, query), viewer)
        except RequestRefused:
            return
        yield Said(tenant.space, f"{path}: {json.dumps(found)}")

    def _explained(self, tenant: Tenant) -> Iterator[Said]:
        """As QueryService shows it, in the fields that the console lacks."""
        viewer = Viewer(Rights(), Identity(tenant.space))
        for gang in self.scheduler.state.gangs.values():
            if gang.namespace == tenant.space:
                found = self._queries.explain(gang.namespace, gang.name)
                assert found is not None
                text = f"{viewer.redacted(found.size, found.namespaces)} {found.queue}"
                yield Said(tenant.space, f"explain {gang.name}: {text}")


def said_by(decision: Decision) -> Iterator[Said]:
    """What readers of an object see of the decision."""
    match decision:
        case Evict():
            yield Said(decision.namespace, decision.public or decision.why)
        case Bind():
            yield Said(decision.namespace, repr(decision.domains))
        case UpdateGangStatus():
            yield Said(decision.namespace, f"{decision.gang}: {decision.phase}: {decision.reason}")
        case _:
            yield Said(decision.namespace, repr(decision))


def facts_of(written: Iterable[Written]) -> list[Fact]:
    """As the watch reads the objects. Those that cannot be read are left out."""
    found: list[Any] = []
    for kind, raw in written:
        try:
            found.append(kinds()[kind].seen(raw))
        except MalformedObject:
            continue
    return found


def leaks(said: Iterable[Said]) -> Iterator[str]:
    """Texts of one tenant that others see."""
    for each in said:
        for tenant in TENANTS:
            if each.namespace != tenant.space and tenant.mark in each.text.lower():
                yield f"{each.namespace or 'everybody'} reads: {_around(each.text, tenant.mark)}"


def _around(text: str, mark: str) -> str:
    at = text.lower().index(mark)
    return text[max(0, at - 300) : at + 100]


def nodes(count: int = 2) -> list[Fact]:
    facts: list[Fact] = []
    for number in range(count):
        name = f"n{number}"
        facts.append(factories.node(name, rack=f"r{number // 2}", block="b"))
        facts.append(factories.report(name, factories.topology()))
    return facts
