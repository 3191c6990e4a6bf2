"""The API server's store of Jobs and the objects around them, which the scheduler creates, changes and deletes.
Objects are raw JSON, and are decoded as the live scheduler decodes them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from central.controllers.pending_calls import ObjectKey
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import MalformedObject
from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered, Fact, GangSeen, JobSeen, PodSeen
from central.model.json_types import Json, json_merge
from central.simulator.documents import BadInput
from central.simulator.priorities import PriorityClasses
from central.simulator.simulation_result import Ended, Resized, SimulationResult

OWNERS = ("Job", "CronJob", "JobFlow", "JobTemplate", "Command")  # deleted with what they own
ENDINGS = ("Completed", "Failed", "Terminated", "Aborted", "Succeed")
STEP_S = 1e-6  # between the creation of two objects at one time


class JobObjects:
    """Callbacks: pod(seen, raw, now) adds a pod to the world, delete(uid, now) deletes one."""

    def __init__(
        self,
        reader: Decoder,
        priorities: PriorityClasses,
        result: SimulationResult,
        *,
        pod: Callable[[PodSeen, Json, float], Iterator[Fact]],
        delete: Callable[[str, float], Iterator[Fact]],
    ) -> None:
        self._reader = reader
        self._kinds = api_kinds.kinds_by_name(reader)
        self._priorities = priorities
        self._result = result
        self._pod = pod
        self._delete = delete
        self._there: dict[ObjectKey, Json] = {}
        self._created: dict[ObjectKey, float] = {}
        self._object_count = 0

    def add(self, fact: JobSeen, raw: Json) -> Iterator[Fact]:
        """Adds or changes a Job."""
        place = ("Job", fact.spec.namespace, fact.spec.name)
        if known := self._there.get(place):
            meta = {**raw["metadata"], "uid": known["metadata"]["uid"]}
            raw = {**raw, "metadata": meta, "status": known.get("status") or {}}
        self._there[place] = raw
        self._created.setdefault(place, fact.created)
        yield from self._facts_of(place, raw)

    def put(self, raw: Json) -> Iterator[Fact]:
        """Adds or changes a CronJob, JobFlow, JobTemplate or Command."""
        place = (raw["kind"], raw["metadata"]["namespace"], raw["metadata"]["name"])
        if known := self._there.get(place):
            raw = {**raw, "status": known.get("status") or {}}
        self._there[place] = raw
        self._created.setdefault(place, 0.0)
        yield from self._facts_of(place, raw)

    def leave(self, gone: Fact, now: float) -> Iterator[Fact]:
        """Deletes a Job, or an object that owns Jobs, with all that it owns."""
        for place, raw in self._there.items():
            if place[0] in OWNERS and self._kinds[place[0]].gone(raw) == gone:
                yield from self._delete_object(place, now)
                return

    def apply_decision(
        self, asked: Create | Delete | SetStatus | Patch, now: float
    ) -> Iterator[Fact]:
        place = (asked.kind, asked.namespace, asked.name)
        verb = type(asked).__name__
        if asked.kind == "Event":
            return
        match asked:
            case Create():
                yield from self._create(place, asked, now)
            case Delete():
                yield Answered(verb, *place)
                yield from self._delete_object(place, now)
            case SetStatus() | Patch():
                raw = self._there.get(place)
                if raw is None:
                    yield Answered(verb, *place, why="not found", code=404)
                    return
                yield Answered(verb, *place, uid=asked.uid)
                if asked.kind != "Pod":  # its annotations are not read here
                    yield from self._change(place, raw, asked, now)

    def _create(self, place: ObjectKey, asked: Create, now: float) -> Iterator[Fact]:
        self._object_count += 1
        created = now + self._object_count * STEP_S
        meta = {**asked.body["metadata"], "uid": f"{asked.kind}-{self._object_count}"}
        raw: dict[str, Any] = {"kind": asked.kind, **asked.body, "metadata": meta}
        if asked.kind == "Pod":
            meta["uid"] = f"Pod/{asked.namespace}/{asked.name}#{self._object_count}"
            spec = raw["spec"] = dict(raw["spec"])
            try:
                self._priorities.apply(spec, BadInput)
            except BadInput as error:
                yield Answered("Create", *place, why=str(error), code=403)
                return
        self._there[place], self._created[place] = raw, created
        yield Answered("Create", *place, uid=meta["uid"])
        if asked.kind == "Pod":
            seen = replace(self._reader.pod(raw), created=created)
            yield from self._pod(seen, raw, now)
        else:
            yield from self._facts_of(place, raw)

    def _change(
        self, place: ObjectKey, raw: Json, asked: SetStatus | Patch, now: float
    ) -> Iterator[Fact]:
        if isinstance(asked, SetStatus):
            before = ((raw.get("status") or {}).get("state") or {}).get("phase")
            self._note_size(place, (raw.get("status") or {}).get("elastic"), asked, now)
            raw = {**raw, "status": asked.status}
            phase = (asked.status.get("state") or {}).get("phase")
            if phase != before and phase in ENDINGS:
                self._result.ended.append(Ended(now, place[1], place[2], place[0], phase))
        else:
            raw = {**raw, "spec": json_merge(raw["spec"], dict(asked.body["spec"]))}
        self._there[place] = raw
        yield from self._facts_of(place, raw)

    def _note_size(self, place: ObjectKey, before: Any, asked: SetStatus, now: float) -> None:
        after = asked.status.get("elastic") or {}
        if after != (before or {}):
            for task in after.values():
                size, reason = task["size"], task["reason"]
                self._result.resized.append(Resized(now, place[1], place[2], size, reason))

    def _facts_of(self, place: ObjectKey, raw: Json) -> Iterator[Fact]:
        kind = self._kinds.get(place[0])
        if kind is None:
            return  # not watched
        try:
            fact = kind.seen(raw)
        except MalformedObject as error:  # the scheduler wrote it itself
            raise AssertionError(str(error)) from error
        if isinstance(fact, JobSeen | GangSeen):
            fact = replace(fact, created=self._created[place])
        yield fact

    def _delete_object(self, place: ObjectKey, now: float) -> Iterator[Fact]:
        raw = self._there.pop(place, None)
        if raw is None:
            return
        if place[0] == "Pod":
            yield from self._delete(raw["metadata"]["uid"], now)
        elif place[0] in ("PodGroup", "PersistentVolumeClaim") or place[0] in OWNERS:
            yield self._kinds[place[0]].gone(raw)
        if place[0] in OWNERS:
            uid = raw["metadata"]["uid"]
            for owned, body in list(self._there.items()):
                owners = body["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == uid for owner in owners):
                    yield from self._delete_object(owned, now)
