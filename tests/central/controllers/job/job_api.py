"""An API server and kubelets in memory, around one core: what it asks for comes to pass call by call,
and may be cut off after any of them. Objects are raw JSON, read as the centre reads them."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import yaml

from central.controllers.composite import jobs_of, new_scheduler
from central.kube.decode import api_kinds, storage_decoder
from central.kube.decode.decoder import Decoder
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    Evict,
    Patch,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Answered, BindDone, Fact, NodeGone
from central.model.json_types import json_merge
from central.model.timestamps import stamp
from central.model.volumes import VolumeSeen
from central.scheduler import cycle
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

Json = dict[str, Any]
Place = tuple[str, str]  # kind and name; all is in one namespace

NAMESPACE = "ns"
WATCHED = (
    "PersistentVolumeClaim",
    "PodGroup",
    "Queue",
    "Job",
    "Command",
    "CronJob",
    "JobTemplate",
    "JobFlow",
    "Pod",
)


class Api:
    def __init__(self, *, calls_left: int | None = None, nodes: int = 4, cpu: int = 64_000) -> None:
        """calls_left: after so many calls the centre falls, and another comes."""
        self.there: dict[Place, Json] = {}
        self.now = 1_000_000.0
        self.calls = 0  # that were carried out
        self.made: Counter[tuple[str, ...]] = Counter()
        self.refuses: Callable[[Decision], str] = lambda _: ""
        self.loses: Callable[[Decision], bool] = lambda _: False  # the answer: it came to pass
        self.grace_steps = 0  # how long pods take to go
        self.cannot_start: Callable[[str], str] = lambda _: ""  # why, by the pod's name
        self.answering = True  # whether pods that start are ready
        self.lag: Callable[[], int] = lambda: 0  # steps by which a watch is behind
        self._news: dict[str, list[tuple[int, Fact]]] = {}  # by kind: not told yet
        self._steps = 0
        self._calls_left = calls_left
        self._nodes = [factories.node(f"n{i}", cpu=cpu, gpus=8) for i in range(nodes)]
        self._kinds = api_kinds.kinds_by_name(Decoder(("lockstep", "volcano"), factories.LEVELS))
        self._facts: list[Fact] = []
        self._uids = 0
        self._going: dict[str, int] = {}  # by pod name: steps left
        self.cluster = new_scheduler()
        self.fall()

    # --- the centre ----------------------------------------------------------------

    def fall(self) -> None:
        """The centre is gone, with all that it had in mind; another lists what is there."""
        self.cluster = new_scheduler(factories.LEVELS)
        self._news.clear()
        self._facts = [*self._nodes, VolumeSeen("v")]
        for kind in WATCHED:
            for (of, _), raw in self.there.items():
                if of == kind:
                    self._facts.append(self._read(raw))

    def step(self, seconds: float = 1.0) -> list[Decision]:
        """One turn, and what it asks for, until it falls."""
        self.now += seconds
        self._steps += 1
        self._reap()
        for kind, news in self._news.items():
            self._facts += [fact for at, fact in news if at <= self._steps]
            self._news[kind] = [(at, fact) for at, fact in news if at > self._steps]
        facts, self._facts = self._facts, []
        decisions = cycle.schedule_once(self.cluster, facts, self.now)
        check_invariants(self.cluster)
        for decision in decisions:
            if isinstance(decision, UpdateGangStatus):
                self._write_group(decision)
            if isinstance(decision, Create | Delete | SetStatus | Patch | Bind | Evict):
                if self._calls_left == 0:
                    self._calls_left = None
                    self.fall()
                    break
                if self._calls_left is not None:
                    self._calls_left -= 1
                self.calls += 1
                self._carry_out(decision)
        return decisions

    def settle(self, most: int = 60, seconds: float = 1.0) -> None:
        """Until nothing is asked for, and nothing on its way."""
        quiet = 0
        for _ in range(most):
            decisions = self.step(seconds)
            busy = decisions or self._facts or self._going or any(self._news.values())
            quiet = 0 if busy else quiet + 1
            if quiet > 2:
                return

    def wait(self, seconds: float) -> None:
        self.step(seconds)
        self.settle()

    # --- people and kubelets --------------------------------------------------------

    def apply(self, text: str | Json) -> None:
        raw: Json = yaml.safe_load(text) if isinstance(text, str) else copy.deepcopy(text)
        raw["metadata"].setdefault("namespace", NAMESPACE)
        old = self.there.get((raw["kind"], raw["metadata"]["name"]))
        if old is not None:
            raw["metadata"] = {**old["metadata"], **raw["metadata"]}
            raw["status"] = old.get("status") or {}
            self._put(raw)
        else:
            self._add(raw)

    def tell(self, fact: Fact) -> None:
        """Something else that the centre hears."""
        self._facts.append(fact)

    def cordon(self, node: str) -> None:
        for at, seen in enumerate(self._nodes):
            if seen.name == node:
                self._nodes[at] = replace(seen, unschedulable=True)
                self._facts.append(self._nodes[at])

    def command(self, action: str, name: str = "j") -> None:
        self._uids += 1
        why, uid = f"somebody wants {action}", f"uid-{self._uids}"
        assert not jobs_of(self.cluster).request_action((NAMESPACE, name), action, why, uid)

    def events(self) -> list[Json]:
        """All, in the order in which they were written."""
        return [raw for (kind, _), raw in self.there.items() if kind == "Event"]

    def delete_job(self, name: str = "j") -> None:
        """The garbage collector takes what it owned, before or after."""
        uid = self.there["Job", name]["metadata"]["uid"]
        self._take(("Job", name))
        for place, raw in list(self.there.items()):
            owners = raw["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == uid for owner in owners):
                self._take(place)

    def lose_node(self, name: str) -> None:
        """With all that is on it; it comes back at once, empty."""
        [node] = [seen for seen in self._nodes if seen.name == name]
        self._facts += [NodeGone(name), node]
        for (kind, pod), raw in list(self.there.items()):
            if kind == "Pod" and raw["spec"].get("nodeName") == name:
                self._take(("Pod", pod))

    def end(self, name: str, code: int = 0, restarts: int = 0) -> None:
        raw = copy.deepcopy(self.there["Pod", name])
        ended = {"exitCode": code, "finishedAt": stamp(self.now)}
        container = {"restartCount": restarts, "state": {"terminated": ended}}
        phase = "Failed" if code else "Succeeded"
        raw["status"] = {"phase": phase, "containerStatuses": [container]}
        self._put(raw)

    def answers(self, name: str) -> None:
        """Its readiness probe has found it well."""
        raw = copy.deepcopy(self.there["Pod", name])
        raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self._put(raw)

    def restart_container(self, name: str, times: int) -> None:
        raw = copy.deepcopy(self.there["Pod", name])
        raw["status"]["containerStatuses"] = [{"restartCount": times, "state": {"running": {}}}]
        self._put(raw)

    def evict(self, name: str) -> None:
        """Somebody else takes the pod away."""
        self._delete_pod(name)

    # --- what there is ---------------------------------------------------------------

    def job(self, name: str = "j") -> Json:
        return self.there["Job", name]

    def status(self, name: str = "j") -> Json:
        found: Json = self.job(name).get("status") or {}
        return found

    def phase(self, name: str = "j") -> str:
        return str((self.status(name).get("state") or {}).get("phase") or "")

    def pods(self) -> dict[str, str]:
        """Phases by name; those that are on their way out are not counted."""
        return {
            name: raw["status"]["phase"]
            for (kind, name), raw in sorted(self.there.items())
            if kind == "Pod" and name not in self._going
        }

    def annotation(self, pod: str, key: str) -> str:
        return str(self.there["Pod", pod]["metadata"]["annotations"].get(key, ""))

    def names(self, kind: str) -> list[str]:
        return sorted(name for of, name in self.there if of == kind)

    # --- calls -----------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        if why := self.refuses(decision):
            assert isinstance(decision, Create | Delete | SetStatus | Patch)
            where = (decision.kind, decision.namespace, decision.name)
            self._facts.append(Answered(type(decision).__name__, *where, why=why, code=403))
            return
        if self.loses(decision):
            assert isinstance(decision, Create | Delete | SetStatus | Patch)
            told = len(self._facts)
            self._obey(decision)
            where = (decision.kind, decision.namespace, decision.name)
            verb = type(decision).__name__
            self._facts[told:] = [Answered(verb, *where, why="no answer in time")]
            return
        self._obey(decision)

    def _obey(self, decision: Decision) -> None:
        match decision:
            case Create():
                self._create(decision)
            case Delete():
                self._delete(decision)
            case SetStatus() | Patch():
                self._change(decision)
            case Bind():
                self._bind(decision)
            case Evict():
                self._delete_pod(decision.name)
            case _:
                return

    def _write_group(self, update: UpdateGangStatus) -> None:
        """What the next leader reads of a PodGroup's status."""
        if (raw := self.there.get(("PodGroup", update.gang))) is not None:
            raw["status"] = {"phase": update.phase, "succeeded": update.succeeded}

    def _create(self, asked: Create) -> None:
        where = (asked.kind, asked.namespace, asked.name)
        place = (asked.kind, asked.name)
        raw: Json = copy.deepcopy({"kind": asked.kind, **asked.body})
        known = self.there.get(place)
        if known is not None:
            mine = raw["metadata"].get("ownerReferences") == known["metadata"].get(
                "ownerReferences"
            )
            if mine and asked.renew:
                self._put({**known, **raw, "metadata": known["metadata"]})
            why = "" if mine and asked.name not in self._going else "it exists already"
            self._facts.append(Answered("Create", *where, known["metadata"]["uid"], why, 409))
            return
        told = raw["metadata"].get("annotations") or {}
        self.made[
            asked.kind,
            asked.name,
            told.get("volcano.sh/job-version", ""),
            told.get("lockstep.dev/pod-restarts", ""),
        ] += 1
        if asked.kind == "Pod":
            raw["status"] = {"phase": "Pending"}
        uid = self._add(raw)
        self._facts.append(Answered("Create", *where, uid))
        there = {known["metadata"]["uid"] for known in self.there.values()}
        if any(owner["uid"] not in there for owner in raw["metadata"].get("ownerReferences", ())):
            self._take(place)  # the garbage collector: its owner is gone

    def _delete(self, asked: Delete) -> None:
        where = (asked.kind, asked.namespace, asked.name)
        known = self.there.get((asked.kind, asked.name))
        if known is not None and known["metadata"]["uid"] == asked.uid:
            if asked.kind == "Pod":
                self._delete_pod(asked.name)
            elif asked.kind == "Job":
                self.delete_job(asked.name)
            else:
                self._take((asked.kind, asked.name))
        self._facts.append(Answered("Delete", *where))

    def _change(self, asked: SetStatus | Patch) -> None:
        where = (asked.kind, asked.namespace, asked.name)
        known = self.there.get((asked.kind, asked.name))
        if known is None or known["metadata"]["uid"] != asked.uid:
            why = "it is gone"
            self._facts.append(Answered(type(asked).__name__, *where, why=why, code=404))
            return
        raw = copy.deepcopy(known)
        if isinstance(asked, SetStatus):
            raw["status"] = copy.deepcopy(dict(asked.status))
        else:
            raw["spec"] = json_merge(raw["spec"], copy.deepcopy(asked.body.get("spec") or {}))
            told = (asked.body.get("metadata") or {}).get("annotations") or {}
            merged = (raw["metadata"].get("annotations") or {}) | told
            raw["metadata"]["annotations"] = {
                key: text for key, text in merged.items() if text is not None
            }
        self._put(raw)
        self._facts.append(Answered(type(asked).__name__, *where, uid=asked.uid))

    def _bind(self, asked: Bind) -> None:
        raw = self.there.get(("Pod", asked.name))
        if raw is not None and raw["metadata"]["uid"] == asked.pod:
            raw = copy.deepcopy(raw)
            raw["spec"]["nodeName"] = asked.node
            ready = {"type": "Ready", "status": str(self.answering)}
            raw["status"] = {"phase": "Running", "conditions": [ready]}
            if why := self.cannot_start(asked.name):
                waits = {"restartCount": 0, "state": {"waiting": {"reason": why}}}
                raw["status"] = {"phase": "Pending", "containerStatuses": [waits]}
            self._put(raw)
            self._facts.append(BindDone(asked.pod, asked.node))

    def _delete_pod(self, name: str) -> None:
        if ("Pod", name) not in self.there:
            return
        ended = self.there["Pod", name]["status"]["phase"] in ("Succeeded", "Failed")
        if not self.grace_steps or ended:
            self._take(("Pod", name))
        elif name not in self._going:
            self._going[name] = self.grace_steps
            raw = copy.deepcopy(self.there["Pod", name])
            raw["metadata"]["deletionTimestamp"] = stamp(self.now)
            self._put(raw)

    def _reap(self) -> None:
        for name in list(self._going):
            self._going[name] -= 1
            if self._going[name] <= 0:
                self._take(("Pod", name))

    def _add(self, raw: Json) -> str:
        self._uids += 1
        uid = f"uid-{self._uids}"
        raw["metadata"] |= {"uid": uid, "creationTimestamp": stamp(self.now)}
        self._put(raw)
        return uid

    def _put(self, raw: Json) -> None:
        self.there[raw["kind"], raw["metadata"]["name"]] = raw
        if raw["kind"] in WATCHED:
            self._watch(raw["kind"], self._read(raw))

    def _watch(self, kind: str, fact: Fact) -> None:
        """Each kind's news come in order, if late."""
        news = self._news.setdefault(kind, [])
        at = max([self._steps + 1 + self.lag(), *(due for due, _ in news[-1:])])
        news.append((at, fact))

    def _take(self, place: Place) -> None:
        raw = self.there.pop(place, None)
        if raw is None:
            return
        kind, name = place
        self._going.pop(name, None)
        if kind in WATCHED:
            self._watch(kind, self._kinds[kind].gone(raw))

    def _read(self, raw: Json) -> Fact:
        if raw["kind"] == "PersistentVolumeClaim":  # bound at once
            meta = {**raw["metadata"], "annotations": {storage_decoder.BIND_COMPLETED: "yes"}}
            raw = {**raw, "metadata": meta, "spec": {**raw["spec"], "volumeName": "v"}}
        return self._kinds[raw["kind"]].seen(raw)


def job(
    tasks: dict[str, int],
    *policies: str,
    of: dict[str, Json] | None = None,
    name: str = "j",
    cpu: str = "100m",
    **spec: Any,
) -> Json:
    """tasks: replicas by name; policies: "PodFailed RestartJob", "137 RestartPod", "PodEvicted
    AbortJob 30s"; of: more fields of a task, by its name."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "lockstep",
            "policies": [policy(told) for told in policies],
            "tasks": [
                {
                    "name": task,
                    "replicas": replicas,
                    "template": {"spec": {"containers": [container]}},
                    **((of or {}).get(task) or {}),
                }
                for task, replicas in tasks.items()
            ],
            **spec,
        },
    }


def policy(told: str) -> Json:
    event, action, *timeout = told.split()
    what: Json = {"exitCode": int(event)} if event.lstrip("-").isdigit() else {"event": event}
    return {**what, "action": action, **({"timeout": timeout[0]} if timeout else {})}
