"""The parts of the leader between the API server and the loop: watches, executor and audit.

parts = LeaderParts(client, loop, election.may_act, plans, ...)   # begins to list
parts.listed()               # every kind is listed
loop.run(parts.executor.submit, plans.publish)
parts.stop()
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from prometheus_client.metrics_core import Metric

from central.kube.decode.api_kinds import Kind
from central.kube.transport import watch
from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.transport.watch import Watches
from central.kube.write.executor import DecisionExecutor, PlanGate
from central.kube.write.tickets import Tickets
from central.model.facts import Fact
from central.scheduler.scheduler import Scheduler
from central.server.assumption_audit import AssumptionAudit
from central.server.loop import Loop
from protos.common.metric_families import counter, gauge
from protos.names import GPU


class LeaderParts:
    def __init__(
        self,
        client: Client,
        loop: Loop,
        kinds: Sequence[Kind],
        plans: PlanGate,
        *,
        observe: Callable[[Fact], None],
        may_act: Callable[[], bool],
        workers: int,
        for_coordinators: Mapping[str, str] = MappingProxyType({}),
        runtime: Runtime = RUNTIME,
    ) -> None:
        """observe: takes each fact of the watches. may_act: whether this replica leads for sure.
        for_coordinators: entries of the Secrets of elastic Jobs' coordinators."""
        self.watches = watch.start(kinds, client, observe, runtime=runtime)
        self.executor = DecisionExecutor(
            client,
            loop.put,
            plans,
            workers,
            may_act=may_act,
            for_coordinators=for_coordinators,
            runtime=runtime,
        )
        tickets, again = self.executor.tickets, partial(self.watches.list_again, "pods")
        self.audit = AssumptionAudit(client, loop, tickets, again, runtime)
        self.audit.start()

    def listed(self) -> bool:
        return self.watches.wait_synced(0.0)

    def families(self) -> Iterator[Metric]:
        return api_families(self.watches, self.executor.tickets, self.audit)

    def stop(self) -> None:
        self.executor.stop()
        self.audit.stop()
        self.watches.stop()


def api_families(watches: Watches, tickets: Tickets, audit: AssumptionAudit) -> Iterator[Metric]:
    about = "Seconds for which a kind has had no watch that works, by kind; none while all have"
    late = sorted((kind, seconds) for kind, (seconds, _) in watches.out_of_sync().items())
    yield gauge("scheduler_out_of_sync_seconds", about, late, "kind")
    about = "Decisions that the API server has not answered yet"
    yield gauge("scheduler_decisions_open", about, tickets.open_count())
    about = "Age in seconds of the oldest decision without an answer"
    yield gauge("scheduler_decisions_open_oldest_seconds", about, tickets.oldest_s())
    about = "Bindings and evictions that the watch does not show after 30 s"
    yield gauge("scheduler_assumptions_old", about, audit.old)
    about = "Old bindings and evictions compared with the API server, by outcome"
    outcomes = sorted(audit.outcomes.items())
    yield counter("scheduler_assumptions_audited", about, outcomes, "outcome")


class Ready:
    """True once every kind is listed, and every GPU node's agent has reported or agents_wait_s are
    over: the scheduler decides only on what it has seen."""

    def __init__(
        self, scheduler: Scheduler, agents_wait_s: float, runtime: Runtime = RUNTIME
    ) -> None:
        self.listed: Callable[[], bool] = lambda: False
        self._scheduler = scheduler
        self._wait_s = agents_wait_s
        self._runtime = runtime
        self._listed_at: float | None = None

    def __call__(self) -> bool:
        if not self.listed():
            return False
        now = self._runtime.monotonic()
        if self._listed_at is None:
            self._listed_at = now
        return now - self._listed_at >= self._wait_s or all(
            node.report is not None
            for node in self._scheduler.state.nodes.values()
            if node.seen is not None and node.seen.allocatable.get(GPU)
        )
