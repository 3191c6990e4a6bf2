"""What is played with each controller: its gang waits while one GPU is taken, and is placed whole after that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import yaml

from central.model.json_types import Json
from protos.names import GPU, SCHEDULER
from tests.e2e.controllers.stage import Stage
from tests.e2e.world import pod

Found = TypeVar("Found")
PLAYED = "lockstep.test/played"  # label of the namespaces
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


def template(gpus: int, scheduler: str = SCHEDULER, *, restarts: bool = False) -> Json:
    spec: Json = pod("x", gpus, scheduler=scheduler)["spec"]
    spec["restartPolicy"] = "Always" if restarts else "Never"
    if not gpus:
        spec["containers"][0]["resources"] = {}
    return {"spec": spec}


class Play:
    """One controller's objects in a namespace of their own."""

    def __init__(self, stage: Stage, namespace: str) -> None:
        self.stage, self.namespace = stage, namespace
        meta = {"name": namespace, "labels": {PLAYED: "true"}}
        stage.create("/api/v1/namespaces", {"metadata": meta})

    def apply(self, *objects: Json) -> None:
        for each in objects:
            each["metadata"]["namespace"] = self.namespace
        self.stage.apply_text(yaml.safe_dump_all(objects))

    def delete(self, kind: str, name: str) -> None:
        self.stage.kubectl("-n", self.namespace, "delete", kind, name, "--wait=false")

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """One of 16 GPUs is taken meanwhile."""
        self.apply(pod("occupant", 1))
        self.until("the occupant to run", lambda: self._phases("occupant") == ["Running"])
        yield
        self.delete("pod", "occupant")

    def members(self) -> list[Json]:
        """The pods, without the one that takes a GPU."""
        found = self.stage.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [each for each in found if each["metadata"]["name"] != "occupant"]

    def placed(self) -> list[Json]:
        return [each for each in self.members() if each["spec"].get("nodeName")]

    def groups(self, phase: str = "") -> list[Json]:
        found = self.stage.get(GROUPS.format(self.namespace))["items"]
        return [each for each in found if phase in each.get("status", {}).get("phase", "")]

    def reason(self, gang: str) -> str:
        found = self.stage.explain(gang, self.namespace)
        return found.reason if found is not None else ""

    def waits_whole(self, gang: str, count: int, why: str) -> None:
        """The gang's `count` pods exist, none has a node, and explain says why."""
        self.until(f"{count} pods", lambda: len(self.members()) == count)
        self.until(f'"{why}"', lambda: why in self.reason(gang))
        assert self.placed() == []

    def runs_whole(self, gang: str, count: int) -> list[Json]:
        """All pods run, and no node has more GPUs in use than it has."""

        def found() -> list[Json]:
            pods = self.members()
            up = [each for each in pods if each["status"]["phase"] == "Running"]
            leaving = any("deletionTimestamp" in each["metadata"] for each in pods)
            return up if len(up) == count == len(pods) and not leaving else []

        pods: list[Json] = self.until(f"{count} running pods", found)
        self.until("the sentence", lambda: f"{count} of {count} pods placed" in self.reason(gang))
        for node in {each["spec"]["nodeName"] for each in pods}:
            assert sum(_gpus(each) for each in pods if each["spec"]["nodeName"] == node) <= 8
        return pods

    def until(self, what: str, holds: Callable[[], Found | None]) -> Found:
        return self.stage.wait(f"{what} in {self.namespace}", holds)

    def _phases(self, name: str) -> list[str]:
        found = self.stage.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [each["status"]["phase"] for each in found if each["metadata"]["name"] == name]


def condition(status: Json, kind: str) -> str:
    """True, False, or empty if the object does not have it."""
    for each in status.get("conditions", ()):
        if each["type"] == kind:
            return str(each["status"])
    return ""


def _gpus(found: Json) -> int:
    limits = found["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(limits.get(GPU, "0"))


def free(stage: Stage) -> None:
    """Deletes what a test has left, so that all GPUs are free."""
    stage.kubectl("delete", "namespaces", "-l", PLAYED, "--wait=false")
    stage.wait("all pods to be gone", lambda: not stage.get("/api/v1/pods")["items"])
