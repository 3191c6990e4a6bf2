"""The records of nodes and queues: GPU faults, drains, agents that stop reporting, changes of a queue.

They have the form of gang records (gang_record.py) without a namespace, so that the history keeps them with these. A
record begins with the first change: 5,000 nodes that are well have none. Of nodes and queues that are gone the latest
are kept here, since an autoscaler gives each node another name; the history's file keeps all for a week.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields

from central.model.facts import (
    Fact,
    NodeGone,
    NodeOffers,
    NodeReported,
    NodeSeen,
    NodeSilent,
    QueueGone,
    QueueSeen,
)
from central.model.json_types import Json
from central.scheduler.scheduler import Scheduler
from central.server.history.gang_record import GangRecord
from central.server.stats.node_rows import problem_of

NODE, QUEUE = "node/", "queue/"
GONE_MOST = 1_000  # records of nodes and queues that are gone
State = dict[str, str]  # what is noted of it: a text by aspect; without an aspect all is well


class ClusterRecords:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._states: dict[str, State] = {}
        self._changed: dict[str, None] = {}
        self.records: dict[str, GangRecord] = {}

    def adopt(self, known: Iterable[Json]) -> None:
        """Takes the records that the last scheduler had."""
        for each in known:
            self.records[each["name"]] = GangRecord.read(each)
            self._states[each["name"]] = each["state"]

    def end_missed(self, now: float) -> None:
        """Ends the records of nodes and queues that were deleted while no scheduler ran."""
        nodes, queues = self._scheduler.state.nodes, self._scheduler.queues
        for name in [*self._states]:
            kind, _, own = name.partition("/")
            if not (own in nodes if f"{kind}/" == NODE else queues.is_declared(own)):
                self._look(name, None, now)

    def observe(self, facts: Sequence[Fact], now: float) -> None:
        for fact in facts:
            match fact:
                case NodeSeen() | NodeGone():
                    self._look(NODE + fact.name, self._node(fact.name), now)
                case NodeReported() | NodeSilent() | NodeOffers():
                    self._look(NODE + fact.node, self._node(fact.node), now)
                case QueueSeen():
                    self._look(QUEUE + fact.name, _queue(fact), now)
                case QueueGone():
                    self._look(QUEUE + fact.name, None, now)
                case _:
                    pass

    def take(self, now: float) -> list[tuple[Json, Json]]:
        """Returns the records that changed since the last time, as summary and in full."""
        changed, self._changed = self._changed, {}
        found = [self.records[name] for name in changed]
        return [(each.summary(), each.shown(now)) for each in found]

    def _node(self, name: str) -> State | None:
        node = self._scheduler.state.nodes.get(name)
        if node is None or node.seen is None:
            return None
        gpus = node.report.topology.gpus if node.report is not None else ()
        found = {f"GPU {gpu.index}": gpu.why or "unhealthy" for gpu in gpus if not gpu.healthy}
        problem = problem_of(node, self._scheduler.state)
        return {**found, "node": problem} if problem else found

    def _look(self, name: str, state: State | None, now: float) -> None:
        """state: None: it is gone."""
        before = self._states.get(name)
        if state is None:
            if self._states.pop(name, None) is not None:
                self._note(name, now, "removed", "")
            return
        self._states[name] = state
        if before is None and name in self.records:
            self._note(name, now, "added", "")
        if before is None:
            return
        for aspect in dict.fromkeys([*before, *state]):
            was, text = (each.get(aspect, "") for each in (before, state))
            if was == text:
                continue
            if name.startswith(QUEUE):
                self._note(name, now, "changed", f"{aspect}: {was or 'none'} to {text or 'none'}")
            else:
                self._note(
                    name, now, "problem" if text else "well again", f"{aspect}: {text or was}"
                )

    def _note(self, name: str, now: float, what: str, text: str) -> None:
        record = self.records.get(name)
        if record is None:
            facts = {"uid": name, "namespace": "", "gang": name, "name": name, "created": now}
            record = self.records[name] = GangRecord(facts, counted=now)
        record.facts["state"] = self._states.get(name, {})
        record.facts["ended"] = now if what == "removed" else None
        record.note(now, what, text)
        self._changed[name] = None
        if what == "removed":
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        ends = [(each.facts.get("ended"), name) for name, each in self.records.items()]
        gone = sorted((end, name) for end, name in ends if end is not None)
        for _, name in gone[:-GONE_MOST]:
            del self.records[name]
            self._changed.pop(name, None)


def _queue(seen: QueueSeen) -> State:
    left_out = ("name", "uid", "command", "access")
    return {
        each.name.replace("_", " "): _text(getattr(seen, each.name))
        for each in fields(seen)
        if each.name not in left_out
    }


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{name} {amount}" for name, amount in value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
