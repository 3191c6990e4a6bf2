"""Kubelets with GPUs, agents that report them, and the users whose pods run there. They see the API server as it
is; what breaks is on the scheduler's side, apart from agents that lie."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from central.kube.transport.http_client import Reply
from central.model.facts import Fact, NodeReported
from central.model.json_types import Json
from central.model.timestamps import stamp
from protos.names import GPU, RUNS_FOR
from protos.topology import Grant, NodeTopology
from tests.central import factories
from tests.simulation.nemesis.virtual_api import VirtualApi
from tests.simulation.nemesis.virtual_runtime import EPOCH, Kernel, Process

NODES, GPUS = 4, 8
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
MERGE = "application/merge-patch+json"
START_S, STOP_S, REPORT_S = 1.0, 2.0, 5.0


def gpus_of(pod: Json) -> int:
    containers = pod["spec"]["containers"]
    return sum(
        int((each.get("resources") or {}).get("limits", {}).get(GPU, 0)) for each in containers
    )


@dataclass
class _Running:
    name: str
    node: str
    gpus: tuple[int, ...]
    started_at: float
    ends_at: float
    shown: bool = False  # its phase is written
    stopping_at: float = 0.0


@dataclass
class Nodes:
    """Kubelets and agents. listeners: takes reports; one for each replica that leads."""

    kernel: Kernel
    api: VirtualApi
    listeners: dict[object, Callable[[Fact], None]] = field(default_factory=dict)
    running: dict[str, _Running] = field(default_factory=dict)  # by uid
    lying_until: float = 0.0
    lies: int = 0
    rejected: int = 0
    ran: int = 0

    def __post_init__(self) -> None:
        self.topology: NodeTopology = factories.topology(GPUS)
        self._generation = 0
        self._sent: dict[object, dict[str, tuple[Grant, ...]]] = {}
        self._reported_at = -REPORT_S

    def register(self) -> None:
        for number in range(NODES):
            amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", GPU: str(GPUS)}
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": f"n{number}",
                    "labels": {"kubernetes.io/hostname": f"n{number}"},
                },
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            self._call("POST", "/api/v1/nodes", node)

    def live(self, process: Process) -> None:
        """One thread for all of them."""
        while True:
            process.runtime.sleep(0.5)
            if not self.api.down and not self.api.full:
                self._kubelets()
            self._agents()

    # --- kubelets ----------------------------------------------------------------------

    def _kubelets(self) -> None:
        pods = {
            item.obj["metadata"]["uid"]: item.obj
            for item in list(self.api.collection(("", "pods")).items.values())
        }
        for uid in list(self.running):
            pod = pods.get(uid)
            if pod is None or pod["spec"].get("nodeName") != self.running[uid].node:
                del self.running[uid]  # its containers are stopped
        for uid, pod in pods.items():
            if pod["spec"].get("nodeName"):
                self._sync(uid, pod)

    def _sync(self, uid: str, pod: Json) -> None:
        now, ours = self.kernel.now, self.running.get(uid)
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if pod["metadata"].get("deletionTimestamp"):
            if ours is not None and not ours.stopping_at:
                ours.stopping_at = now + STOP_S
            elif ours is None or now >= ours.stopping_at:
                self.running.pop(uid, None)
                self._call("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        elif phase in {"Succeeded", "Failed"}:
            self.running.pop(uid, None)
        elif ours is None:
            self._admit(uid, pod)
        elif not ours.shown and now >= ours.started_at:
            ours.shown = self._set_phase(pod, "Running")
        elif ours.shown and now >= ours.ends_at and self._set_phase(pod, "Succeeded"):
            del self.running[uid]
            self.ran += 1

    def _admit(self, uid: str, pod: Json) -> None:
        node, count = pod["spec"]["nodeName"], gpus_of(pod)
        used = {gpu for each in self.running.values() if each.node == node for gpu in each.gpus}
        free = [gpu for gpu in range(GPUS) if gpu not in used]
        if len(free) < count:
            self.rejected += 1
            self._set_phase(pod, "Failed")
            return
        if self.kernel.dice.random() < 0.2:
            free.reverse()  # others than the scheduler planned
        runs_s = float((pod["metadata"].get("annotations") or {})[RUNS_FOR].removesuffix("s"))
        began = self.kernel.now + START_S
        name = pod["metadata"]["name"]
        self.running[uid] = _Running(name, node, tuple(free[:count]), began, began + runs_s)

    def _set_phase(self, pod: Json, phase: str) -> bool:
        path = f"{PODS}/{pod['metadata']['name']}/status"
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        status = {"phase": phase, "conditions": [ready]}
        now = stamp(EPOCH + self.kernel.now)
        if phase == "Running":
            status["startTime"] = now
        elif phase == "Succeeded":
            ended = {"exitCode": 0, "finishedAt": now}
            status["containerStatuses"] = [{"name": "main", "state": {"terminated": ended}}]
        return self._call("PATCH", path, {"status": status}).ok

    def _call(self, method: str, path: str, body: Json) -> Reply:
        kind = MERGE if method == "PATCH" else "application/json"
        return self.api.answer(method, path, orjson.dumps(body), kind)

    # --- agents ------------------------------------------------------------------------

    def _agents(self) -> None:
        if self.kernel.now - self._reported_at < REPORT_S:
            return
        self._reported_at = self.kernel.now
        for listener, put in list(self.listeners.items()):
            sent = self._sent.setdefault(listener, {})
            for number in range(NODES):
                name = f"n{number}"
                grants = self._grants(name)
                if sent.get(name) != grants:
                    sent[name] = grants
                    self._generation += 1
                    put(NodeReported(name, "boot", self._generation, self.topology, grants))

    def _grants(self, node: str) -> tuple[Grant, ...]:
        """What pod-resources lists. A lie: a pod is missing, or one GPU is listed twice."""
        found = [
            Grant("default", each.name, "main", GPU, tuple(f"GPU-{gpu}" for gpu in each.gpus))
            for each in self.running.values()
            if each.node == node and each.gpus
        ]
        if self.kernel.now < self.lying_until and len(found) > 1:
            self.lies += 1
            if self.kernel.dice.random() < 0.5:
                found.pop()
            else:
                found[0] = replace(found[0], device_ids=found[1].device_ids)
        return tuple(found)


class User:
    """Creates gangs, and makes pods again that are gone or failed, as a ReplicaSet would."""

    def __init__(self, kernel: Kernel, api: VirtualApi) -> None:
        self.kernel, self._api = kernel, api
        self.gangs: dict[str, list[Json]] = {}  # pods by PodGroup
        self.jobs: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.arrives: dict[str, float] = {}  # gangs and Jobs, by name

    def call(self, method: str, path: str, body: Json | None = None) -> Reply:
        return self._api.answer(
            method, path, orjson.dumps(body) if body is not None else None, "application/json"
        )

    def queue(self, name: str, gpus: int) -> None:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "capability": {GPU: str(gpus)}},
        }
        assert self.call("POST", "/apis/scheduling.volcano.sh/v1beta1/queues", body).ok

    def gang(self, name: str, pods: int, gpus: int, runs_s: int, queue: str = "") -> None:
        self.groups[name] = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": pods, **({"queue": queue} if queue else {})},
        }
        meta: dict[str, Any] = {
            "annotations": {"scheduling.k8s.io/group-name": name, RUNS_FOR: f"{runs_s}s"}
        }
        self.gangs[name] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{rank}", **meta},
                "spec": {"schedulerName": "lockstep", "containers": [container(gpus)]},
            }
            for rank in range(pods)
        ]

    def job(self, name: str, pods: int, gpus: int, runs_s: int) -> None:
        template = {
            "metadata": {"annotations": {RUNS_FOR: f"{runs_s}s"}},
            "spec": {"restartPolicy": "Never", "containers": [container(gpus)]},
        }
        self.jobs[name] = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {
                "minAvailable": pods,
                "schedulerName": "lockstep",
                "maxRetry": 1000,
                "policies": [
                    {"event": "PodEvicted", "action": "RestartJob"},
                    {"event": "PodFailed", "action": "RestartJob"},
                ],
                "tasks": [{"name": "w", "replicas": pods, "template": template}],
            },
        }

    def live(self, process: Process) -> None:
        while True:
            process.runtime.sleep(2.0)
            if not self._api.down and not self._api.full:
                self.tend()

    def tend(self) -> None:
        jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
        here = {name for name, at in self.arrives.items() if at <= self.kernel.now}
        for name, body in self.jobs.items():
            if name in here and self.call("GET", f"{jobs}/{name}").status == 404:
                assert self.call("POST", jobs, body).ok
        for name, pods in self.gangs.items():
            if name not in here:
                continue
            if self.call("GET", f"{GROUPS}/{name}").status == 404:
                assert self.call("POST", GROUPS, self.groups[name]).ok
            for pod in pods:
                self._tend_pod(pod)

    def _tend_pod(self, pod: Json) -> None:
        path = f"{PODS}/{pod['metadata']['name']}"
        reply = self.call("GET", path)
        if reply.status == 404:
            assert self.call("POST", PODS, pod).ok
        elif (reply.json().get("status") or {}).get("phase") == "Failed":
            self.call("DELETE", path, {"gracePeriodSeconds": 0})

    # --- how it ends -------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """Gangs and Jobs that have not completed."""
        found = []
        for name, pods in self.gangs.items():
            paths = [f"{PODS}/{pod['metadata']['name']}" for pod in pods]
            replies = [self.call("GET", path) for path in paths]
            phases = [r.json()["status"]["phase"] if r.ok else "gone" for r in replies]
            if set(phases) != {"Succeeded"}:
                found.append(f"gang {name}: {', '.join(phases)}")
        for name in self.jobs:
            reply = self.call(
                "GET", f"/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/{name}"
            )
            phase = ((reply.json().get("status") or {}).get("state") or {}).get("phase", "none")
            if phase != "Completed":
                found.append(f"job {name}: {phase}")
        return found


def container(gpus: int) -> Json:
    return {"name": "main", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
