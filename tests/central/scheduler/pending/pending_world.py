"""A small cluster as the API server and the agents describe it, around one scheduler: a bound pod runs, and a pod that
is evicted terminates until the story lets it go."""

import copy
from collections.abc import Mapping
from typing import Any

from central.controllers.composite import new_scheduler
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import EvictDone, Fact
from central.model.json_types import Json
from central.model.timestamps import stamp
from central.scheduler.cycle import schedule_once
from central.server.queries import explain
from protos.names import BLOCK, DOMAIN, GPU, GROUP_NAMES, HOSTNAME, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

NAMESPACE = "lab"
NOW = 1_790_000_000.0
KINDS = {
    (kind.resource.group, kind.resource.kind): kind
    for kind in api_kinds.kinds(Decoder(("lockstep",), factories.LEVELS))
}


class PendingWorld:
    def __init__(self, **policy: Any) -> None:
        """policy: of new_scheduler()."""
        self.scheduler = new_scheduler(factories.LEVELS, **policy)
        self.now = NOW
        self._pods: dict[str, Json] = {}  # by uid
        self._answers: list[Fact] = []
        self.stuck = ""  # why containers do not start

    def apply(self, *objects: Json | Fact) -> None:
        """Creates or changes objects, and lets the scheduler see them; then the reason is as it stays."""
        self._cycle([self._fact(each) for each in objects])
        for _ in range(3):
            self.wait(1.0)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._cycle([])

    def end(self, *names: str) -> None:
        """The pods end, or are gone after their deletion."""
        found = [raw for raw in self._pods.values() if raw["metadata"]["name"] in names]
        assert len(found) == len(names), names
        for raw in found:
            del self._pods[raw["metadata"]["uid"]]
        self.apply(*(KINDS["", "Pod"].gone(raw) for raw in found))

    def delete(self, *names: str, grace: int = 30, since: float = 0.0) -> None:
        """Somebody deletes pods, which terminate from then on. since: seconds ago."""
        changed = [self._pods[f"uid-{name}"] for name in names]
        for raw in changed:
            raw["metadata"]["deletionTimestamp"] = stamp(self.now - since + grace)
            raw["metadata"]["deletionGracePeriodSeconds"] = grace
        self.apply(*changed)

    def object(self, name: str) -> Json:
        return self._pods[f"uid-{name}"]

    def names(self) -> set[str]:
        return {raw["metadata"]["name"] for raw in self._pods.values()}

    def reason(self, name: str) -> str:
        found = explain(self.scheduler, NAMESPACE, name)
        assert found is not None
        return "" if found.phase == "Running" else found.reason

    def _fact(self, given: Json | Fact) -> Fact:
        if not isinstance(given, dict):
            return given
        raw = copy.deepcopy(given)
        raw["metadata"].setdefault("namespace", NAMESPACE)
        raw["metadata"].setdefault("uid", f"uid-{raw['metadata']['name']}")
        raw["metadata"].setdefault("creationTimestamp", stamp(self.now))
        group = raw["apiVersion"].rpartition("/")[0]
        if raw["kind"] == "Pod":
            raw = self._pod(raw)
        return KINDS[group, raw["kind"]].seen(raw)

    def _pod(self, raw: Json) -> Json:
        before = self._pods.get(raw["metadata"]["uid"])
        if before is not None and before["spec"].get("nodeName"):
            raw["spec"].setdefault("nodeName", before["spec"]["nodeName"])
            raw["metadata"]["creationTimestamp"] = before["metadata"]["creationTimestamp"]
        self._pods[raw["metadata"]["uid"]] = raw
        return self._runs(raw) if raw["spec"].get("nodeName") else raw

    def _runs(self, raw: Json) -> Json:
        ready = {"type": "Ready", "status": str(not self.stuck)}
        status: Json = {"phase": "Running", "startTime": stamp(self.now), "conditions": [ready]}
        if self.stuck:
            waiting = {"restartCount": 0, "state": {"waiting": {"reason": self.stuck}}}
            status |= {"phase": "Pending", "containerStatuses": [waiting]}
        raw.setdefault("status", status)
        return raw

    def _cycle(self, facts: list[Fact]) -> None:
        facts, self._answers = [*self._answers, *facts], []
        decisions = schedule_once(self.scheduler, facts, self.now)
        check_invariants(self.scheduler)
        for decision in decisions:
            self._obey(decision)

    def _obey(self, decision: Decision) -> None:
        if isinstance(decision, Bind):
            raw = self._pods[decision.pod]
            raw["spec"]["nodeName"] = decision.node
            self._answers.append(KINDS["", "Pod"].seen(self._runs(raw)))
        elif isinstance(decision, Evict):
            raw = self._pods[decision.pod]
            self._answers.append(EvictDone(decision.pod, trial=decision.trial))
            if not decision.trial:
                grace = raw["spec"].get("terminationGracePeriodSeconds", 30)
                raw["metadata"]["deletionTimestamp"] = stamp(self.now + grace)
                raw["metadata"]["deletionGracePeriodSeconds"] = grace
                self._answers.append(KINDS["", "Pod"].seen(raw))


def node(
    name: str,
    gpus: int = 8,
    *,
    cpu: str = "64",
    memory: str = "512Gi",
    rack: str = "",
    block: str = "",
    labels: Mapping[str, str] | None = None,
    taints: tuple[str, ...] = (),
    cordoned: bool = False,
    ready: bool = True,
    **more: Any,
) -> Json:
    """taints: KEY=VALUE. more: allocatable resources, "_" for "-", "__" for "/" and "."."""
    own = {HOSTNAME: name, RACK: rack, BLOCK: block, **(labels or {})}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", GPU: str(gpus)}
    amounts |= {key: str(value) for key, value in more.pop("resources", {}).items()}
    keyed = [each.partition("=") for each in taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {key: value for key, value in own.items() if value}},
        "spec": {
            "unschedulable": cordoned,
            "taints": [{"key": k, "value": v, "effect": "NoSchedule"} for k, _, v in keyed],
        },
        "status": {
            "allocatable": {key: value for key, value in amounts.items() if value != "0"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def pod(
    name: str,
    gpus: int = 0,
    *,
    gang: str = "",
    on: str = "",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, object] | None = None,
    notes: Mapping[str, str] | None = None,
    ports: tuple[int, ...] = (),
    **spec: Any,
) -> Json:
    """requests: resources beside GPUs, as limits. notes: annotations; those without a domain are Lockstep's."""
    asked = {GPU: gpus, "cpu": "100m", **(requests or {})}
    own = {key if "/" in key else f"{DOMAIN}/{key}": value for key, value in (notes or {}).items()}
    if gang:
        own[GROUP_NAMES[0]] = gang
    container = {
        "name": "main",
        "resources": {"limits": {key: str(value) for key, value in asked.items() if value}},
        "ports": [{"hostPort": port, "containerPort": port} for port in ports],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": own},
        "spec": {
            "schedulerName": "lockstep",
            "containers": [container],
            **({"nodeName": on} if on else {}),
            **spec,
        },
    }


def group(name: str, least: int, *, notes: Mapping[str, str] | None = None, **spec: Any) -> Json:
    own = {key if "/" in key else f"{DOMAIN}/{key}": value for key, value in (notes or {}).items()}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": own},
        "spec": {"minMember": least, **spec},
    }


def gang(
    name: str,
    pods: int,
    gpus: int = 8,
    *,
    required: str = "",
    queue: str = "",
    on: tuple[str, ...] = (),
    of_group: Mapping[str, Any] | None = None,
    **of_pods: Any,
) -> list[Json]:
    """A PodGroup with all its pods, which run on these nodes."""
    notes = {"topology-required": required} if required else {}
    fields = {**({"queue": queue} if queue else {}), **(of_group or {})}
    members = [
        pod(f"{name}-{rank}", gpus, gang=name, on=on[rank] if on else "", **of_pods)
        for rank in range(pods)
    ]
    return [group(name, pods, notes=notes, **fields), *members]


def queue(name: str, *, gpus: Mapping[str, int] | None = None, **spec: Any) -> Json:
    """gpus: by field, as in capability=16."""
    amounts: Json = {key: {GPU: most} for key, most in (gpus or {}).items()}
    if "guarantee" in amounts:
        amounts["guarantee"] = {"resource": amounts["guarantee"]}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {**amounts, **spec},
    }


def priority_class(name: str, value: int) -> Json:
    api = "scheduling.k8s.io/v1"
    return {"apiVersion": api, "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
