"""The records of all gangs (gang_record.py), from the facts and decisions of each cycle.

GangRecords.observe runs in the scheduling loop: a few dictionary look-ups for each fact and decision, and one look at
each gang that they name. Records of gangs that have ended are kept here up to BYTES_MOST, the latest ones; the
history's file keeps all for a week, and through restarts (history_store.py).

Design: docs/design/observability.md
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

import orjson

from central.model import event_reasons, wording
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    UpdateGangStatus,
)
from central.model.facts import BindDone, BindFailed, Fact, GangGone, GangSeen, PodGone, PodSeen
from central.model.json_types import Json
from central.model.phases import INQUEUE
from central.model.resources import GPU_UNITS
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.server.gpu_uses import GpuUses
from central.server.history.cluster_records import ClusterRecords
from central.server.history.gang_record import (
    ADMITTED,
    BOUND,
    COMPLETED,
    DELETED,
    FAILED,
    NODES_MOST,
    PENDING,
    PLACED,
    RUNNING,
    STAGES,
    SUSPENDED,
    GangRecord,
)
from central.server.stats.gang_counters import gang_of_update, lost_gpu_s

BYTES_MOST = 16 << 20  # of the records of gangs that have ended
NODES_NAMED = 3  # in the text of an event
# Events of pods and Jobs that the record tells, with their messages.
_SIZES = {
    event_reasons.GREW: "grew",
    event_reasons.SHRANK: "shrank",
    event_reasons.MEMBER_LOST: "member lost",
}
_FOUND = {
    **_SIZES,
    event_reasons.TRAINING_HANGS: "hangs",
    event_reasons.WEAK_PAIRS: "weak pairs",
    event_reasons.SLOW_MEMBERS: "slow members",
    event_reasons.GPU_UNHEALTHY: "GPU unhealthy",
    event_reasons.NIC_UNHEALTHY: "NIC unhealthy",
    event_reasons.GPU_MEMORY_EXCEEDED: "GPU memory",
    event_reasons.RDMA_LIMIT_REACHED: "RDMA limit",
}


class KeptRecord(NamedTuple):
    summary: Json
    body: bytes  # the record as JSON


Noted = tuple[list[tuple[Json, list[Json]]], list[bytes]]


class GangRecords:
    def __init__(
        self,
        scheduler: Scheduler,
        uses: GpuUses | None = None,
        activities: dict[tuple[str, str], dict[str, float]] | None = None,
    ) -> None:
        """activities: gets an entry by namespace and name for each gang until it is gone, which others keep up to
        date."""
        self._scheduler, self._uses = scheduler, uses or GpuUses()
        self._activities = {} if activities is None else activities
        self._known: dict[str, Json] = {}  # by uid, of gangs that are not seen yet
        self._open: dict[GangKey, GangRecord] = {}
        self._began = False
        self._ended: OrderedDict[str, KeptRecord] = OrderedDict()  # by uid, latest last
        self._ended_bytes = 0
        self._of_pod: dict[str, GangKey] = {}
        self._left: dict[
            GangKey, Counter[tuple[str, str, str]]
        ] = {}  # how, cause and why pods leave
        self._changed: dict[str, None] = {}  # uids of records that steps() has not given
        self.cluster = ClusterRecords(scheduler)

    def adopt(self, known: Iterable[Json]) -> None:
        """Takes the records of gangs that had not ended when the last scheduler did, before the loop begins."""
        by_uid = {each["uid"]: each for each in known}
        self._known = {uid: each for uid, each in by_uid.items() if each["namespace"]}
        self.cluster.adopt([each for each in by_uid.values() if not each["namespace"]])

    # --- in the loop ------------------------------------------------------------------------

    def observe(self, facts: Sequence[Fact], decisions: Sequence[Decision]) -> None:
        """Records a cycle, called after it with its facts and decisions."""
        now = self._scheduler.state.now
        if not self._began:  # the facts before the first cycle that decides are not told
            self._began = True
            for gang in [*self._scheduler.state.gangs.values()]:
                self._of_pod.update(dict.fromkeys(gang.members, gang.key))
                self._look(gang.key, now)
            self._end_missed(now)
            self.cluster.end_missed(now)
        self.cluster.observe(facts, now)
        touched = dict.fromkeys(named for named in map(self._key, facts) if named is not None)
        gangs = self._scheduler.state.gangs
        for fresh in [each for each in touched if each not in self._open and each in gangs]:
            if not gangs[fresh].foreign:
                self._begin(gangs[fresh], now)  # before it is told why it waits
        for decision in decisions:
            if (key := self._key_of(decision, now)) is not None:
                touched[key] = None
        for key in touched:
            self._look(key, now)

    def _key_of(self, decision: Decision, now: float) -> GangKey | None:
        match decision:
            case Bind():
                return self._of_pod.get(decision.pod)
            case Evict(trial=False):
                key = self._leaves(decision.pod, "evicted", decision.cause, decision.why)
                self._lose(key, decision.pod, now)
                return key
            case Delete(kind="Pod"):
                return self._leaves(decision.uid, "pods deleted", "", decision.why)
            case EmitWarning():
                return self._tell(
                    self._of_pod.get(decision.pod), decision.reason, decision.why, now
                )
            case UpdateGangStatus():
                return self._waits(decision, now)
            case Create(kind="Event"):
                job, why = decision.body["involvedObject"], decision.body["message"]
                of_job = (job.get("namespace", ""), f"{job['name']}-{job.get('uid', '')}", True)
                return self._tell(of_job, decision.body["reason"], why, now)
            case _:
                return None

    def _key(self, fact: Fact) -> GangKey | None:
        match fact:
            case PodSeen():
                if (key := fact.gang_key) is not None:
                    self._of_pod[fact.uid] = key
                return key
            case PodGone():
                return self._of_pod.pop(fact.uid, None)
            case BindDone() | BindFailed():
                return self._of_pod.get(fact.pod)
            case GangSeen() | GangGone():
                return (fact.namespace, fact.name, True)
            case _:
                return None

    def _leaves(self, uid: str, how: str, cause: str, why: str) -> GangKey | None:
        key = self._of_pod.get(uid)
        if key is not None:
            self._left.setdefault(key, Counter())[how, cause, why] += 1
        return key

    def _lose(self, key: GangKey | None, uid: str, now: float) -> None:
        pod, record = self._scheduler.state.pods.get(uid), self._open.get(key) if key else None
        if pod is not None and record is not None:
            record.lost += lost_gpu_s(self._scheduler, pod, now)

    def _waits(self, update: UpdateGangStatus, now: float) -> GangKey | None:
        for key in ((update.namespace, update.gang, each) for each in (True, False)):
            if (record := self._open.get(key)) is not None:
                record.count(now)
                record.wait(now, update.cause, update.reason)
                return key
        gang = gang_of_update(self._scheduler, update)
        return gang.key if gang is not None else None

    def _tell(self, key: GangKey | None, reason: str, why: str, now: float) -> GangKey | None:
        """reason: of an Event of the gang's Job or of one of its pods."""
        what, record = _FOUND.get(reason), self._open.get(key) if key is not None else None
        if what is None or record is None:
            return None
        record.sizes_are_told |= reason in _SIZES
        record.note(now, what, why)
        return key

    def _look(self, key: GangKey, now: float) -> None:
        """Compares the gang with its record."""
        gang, record = self._scheduler.state.gangs.get(key), self._open.get(key)
        if gang is None or gang.foreign:
            if record is not None:
                self._end(key, record, now, DELETED)
            return
        if record is None:
            record = self._begin(gang, now)
        record.count(now)
        record.facts["queue"], record.facts["minimum"] = gang.queue_name, gang.minimum
        holders = [pod for pod in gang.members.values() if pod.node and pod.alive]
        left = self._left.pop(key, Counter())
        for (how, cause, why), pods in left.items():
            record.note(now, how, f"{wording.counted(pods, 'pod')}: {why}", cause)
        self._resize(record, gang, holders, now)
        self._move(key, record, gang, now)
        self._changed[record.facts["uid"]] = None

    def _begin(self, gang: Gang, now: float) -> GangRecord:
        uid, first = (
            gang.lasting_uid,
            min(gang.members.values(), key=lambda pod: pod.seen.order, default=None),
        )
        if (known := self._known.pop(uid, None)) is not None:
            record = GangRecord.read(known)
            record.counted = now  # what happened meanwhile is unknown
        else:
            created = gang.created or now
            facts = {
                "uid": uid,
                "namespace": gang.namespace,
                "gang": gang.name,
                "name": gang.owner or gang.name,
                "queue": gang.queue_name,
                "user": (first.seen.user or first.seen.service_account) if first else "",
                "minimum": gang.minimum,
                "created": created,
                "started": None,
                "ended": None,
                "stage": PENDING,
            }
            record = GangRecord(facts, counted=now)
            record.note(created, "created")
        self._activities[gang.key[:2]] = record.activities
        self._open[gang.key] = record
        return record

    def _end_missed(self, now: float) -> None:
        """Ends the records of gangs that were deleted while no scheduler ran."""
        for known in self._known.values():
            record = GangRecord.read(known)
            if record.facts["ended"] is None:
                if record.sizes and record.sizes[-1][1]:
                    record.resize(record.counted, 0, 0.0)
                record.wait(record.counted, "", "")
                record.note(now, DELETED, "while no scheduler was running")
                record.facts["stage"], record.facts["ended"] = DELETED, now
            record.counted = now
            self._close(record, now)
        self._known = {}

    def _resize(self, record: GangRecord, gang: Gang, holders: list[Pod], now: float) -> None:
        worth = self._scheduler.queues.currency.worth
        gpus = sum(worth(pod.spec.requests) for pod in holders) / GPU_UNITS
        before = record.sizes[-1][1] if record.sizes else 0
        if record.sizes and record.sizes[-1][1:] == (len(holders), gpus):
            return
        if not (record.sizes or holders):
            return
        record.resize(now, len(holders), gpus)
        for pod in holders:
            if len(record.nodes) < NODES_MOST:
                record.nodes[pod.node] = None
        after = len(holders)
        if not (before and holders) or after == before or record.facts["started"] is None:
            return
        if record.sizes_are_told:
            return
        # Where the gang ends, or all its pods leave, another event says so.
        if after > before or (_stage(gang) == RUNNING and not gang.counts.succeeded):
            what = "grew" if after > before else "shrank"
            record.note(now, what, f"{before} to {wording.counted(after, 'pod')}")

    def _move(self, key: GangKey, record: GangRecord, gang: Gang, now: float) -> None:
        """Notes the stages that the gang has reached, that it waits again, or that it is suspended or resumed."""
        counts, facts = gang.counts, record.facts
        alive = any(pod.alive for pod in gang.members.values())
        leaving = all(pod.seen.deleting for pod in gang.members.values())
        if not (alive or leaving or gang.published.suspended):
            self._end(key, record, now, FAILED if counts.failed else COMPLETED)
            return
        facts["ended"] = None  # it may have been restarted
        stage, before = _stage(gang), facts["stage"]
        if stage == before:
            return
        if before in (PLACED, BOUND) and stage in (PENDING, ADMITTED, PLACED) and counts.placed:
            return  # its minimum or its pods became more while it starts
        facts["stage"] = stage
        if SUSPENDED in (stage, before):
            record.note(now, SUSPENDED if stage == SUSPENDED else "resumed")
        if stage == SUSPENDED:
            return
        at = STAGES.index(before) if before in STAGES else 0
        if STAGES.index(stage) < at and before != ADMITTED:
            record.note(now, "waits again")
        for each in STAGES[at + 1 : STAGES.index(stage) + 1]:
            if each == ADMITTED and stage != ADMITTED:
                continue  # it was not seen
            record.note(now, each, _where(gang) if each == PLACED else "")
        if stage == RUNNING and facts["started"] is None:
            facts["started"] = now

    def _end(self, key: GangKey, record: GangRecord, now: float, how: str) -> None:
        record.count(now)
        if record.facts["ended"] is None:
            if record.sizes and record.sizes[-1][1]:
                record.resize(now, 0, 0.0)
            record.wait(now, "", "")
            record.note(now, how)
            record.facts["stage"], record.facts["ended"] = how, now
        if how != DELETED and key in self._scheduler.state.gangs:
            return  # it may be restarted; it is closed once it is gone
        self._open.pop(key, None)
        self._left.pop(key, None)
        self._activities.pop(key[:2], None)
        self._close(record, now)

    def _close(self, record: GangRecord, now: float) -> None:
        uid, body = record.facts["uid"], orjson.dumps(record.shown(now))
        if (before := self._ended.pop(uid, None)) is not None:
            self._ended_bytes -= len(before.body)
        self._ended_bytes += len(body)
        self._ended[uid] = KeptRecord(record.summary(), body)
        self._changed[uid] = None
        while self._ended_bytes > BYTES_MOST:
            _, oldest = self._ended.popitem(last=False)
            self._ended_bytes -= len(oldest.body)

    # --- questions to the loop ---------------------------------------------------------------

    def steps(self, scheduler: Scheduler) -> Generator[None, None, list[KeptRecord]]:
        """Returns the records that changed since the last time, whether ended or not, for a sliced question."""
        changed, self._changed = self._changed, {}
        found = []
        for record in [*self._open.values()]:
            if changed.pop(record.facts["uid"], 0) is None:
                body = orjson.dumps(record.shown(scheduler.state.now))
                found.append(KeptRecord(record.summary(), body))
            yield
        ended = [self._ended[uid] for uid in changed if uid in self._ended]
        others = self.cluster.take(scheduler.state.now)
        return [*found, *ended, *(KeptRecord(row, orjson.dumps(body)) for row, body in others)]

    def add_use(
        self, scheduler: Scheduler, elapsed_s: float
    ) -> Generator[None, None, list[tuple[float, float, str]]]:
        """Adds to each record what its pods used of their GPUs in the last elapsed_s, as their agents reported it last.
        The answer of the sliced question has the same for allocations, in GPU_UNITS times milliseconds, with the pod's
        uid."""
        found = []
        for key, record in [*self._open.items()]:
            gang = scheduler.state.gangs.get(key)
            for pod in gang.counts.placed if gang is not None else ():
                use = self._uses.on_node(pod.node, pod.seen.namespace, pod.seen.name)
                if use is None or use.utilization is None:
                    continue
                rated = scheduler.queues.currency.worth(pod.spec.requests) * elapsed_s
                busy = rated * use.utilization
                record.rated += rated / GPU_UNITS
                record.busy += busy / GPU_UNITS
                found.append((busy * 1000, rated * 1000, pod.seen.uid))
            yield
        return found

    def find(self, namespace: str, name: str) -> Json | bytes | None:
        """Returns the latest record of that name: of a gang, or of its owner, with or without its kind."""
        for key, record in self._open.items():
            if key[0] == namespace and is_called(record.facts, name):
                shown = record.shown(self._scheduler.state.now)
                return {**shown, "gpu_use": self._use(key)}
        for ended in reversed(self._ended.values()):
            if ended.summary["namespace"] == namespace and is_called(ended.summary, name):
                return ended.body
        return None

    def _use(self, key: GangKey) -> Json | None:
        gang = self._scheduler.state.gangs.get(key)
        placed = gang.counts.placed if gang is not None else []
        names = ((pod.node, pod.seen.namespace, pod.seen.name) for pod in placed)
        return self._uses.together(names, time.monotonic())

    def listed(self, scheduler: Scheduler) -> Generator[None, None, list[Json]]:
        """Returns the summaries of all gangs, of those that have ended the latest first, for a sliced question."""
        found = []
        for key, record in [*self._open.items()]:
            found.append({**record.summary(), "gpu_use": self._use(key)})
            yield
        return [*found, *(each.summary for each in reversed(self._ended.values()))]

    def events(self, scheduler: Scheduler) -> Generator[None, None, Noted]:
        """Returns the facts and events of each record that is open, and the records that have ended as JSON, for a
        sliced question."""
        found = []
        for record in [*self._open.values(), *self.cluster.records.values()]:
            found.append(({**record.facts}, [*record.events]))
            yield
        return found, [each.body for each in self._ended.values()]


def is_called(facts: Json, name: str) -> bool:
    return name == facts["gang"] or f"/{facts['name']}".endswith(f"/{name}")


def _stage(gang: Gang) -> str:
    if gang.published.suspended:
        return SUSPENDED
    counts, override = gang.counts, gang.published.override
    if not counts.placed or gang.missing():
        return ADMITTED if override is not None and override[0] == INQUEUE else PENDING
    if counts.running + counts.succeeded >= gang.minimum:
        return RUNNING
    return PLACED if counts.assumed else BOUND


def _where(gang: Gang) -> str:
    nodes = dict.fromkeys(pod.node for pod in gang.counts.placed)
    shown = ", ".join([*nodes][:NODES_NAMED])
    more = f" and {len(nodes) - NODES_NAMED} more" if len(nodes) > NODES_NAMED else ""
    return f"{wording.counted(len(gang.counts.placed), 'pod')} on {shown}{more}"
