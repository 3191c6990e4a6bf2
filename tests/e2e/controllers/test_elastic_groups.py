"""JobSet's, LeaderWorkerSet's and KubeRay's own controllers create and delete the pods of objects that the scheduler
sizes: they grow into all free GPUs, give way to a more urgent gang, and grow again, and whoever stays is not
disturbed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from central.model.json_types import Json
from central.standalone.local_cluster import free_port
from protos.names import ELASTIC_MAX, ELASTIC_MIN, GANG_LABEL, GANG_MIN
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, condition, template
from tests.e2e.controllers.stage import Stage
from tests.e2e.world import pod

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
ELASTIC_JOBSETS = {"featureGates": {"ElasticJobSet": True}}
URGENT = "urgent"


class Sized(Play):
    """One elastic object and what others need, on 16 GPUs. role: the part of its pods' names that says which vary."""

    def __init__(self, stage: Stage, namespace: str, path: str, role: str = "") -> None:
        super().__init__(stage, namespace)
        self._path, self._role = path.format(namespace), role

    @property
    def object(self) -> Json:
        return self.stage.get(self._path)

    def running(self, part: str) -> dict[str, Json]:
        """Pods of the object by uid, those that are leaving not among them."""
        return {
            each["metadata"]["uid"]: each
            for each in self.members()
            if part in each["metadata"]["name"]
            and URGENT not in each["metadata"]["name"]
            and each["status"].get("phase") == "Running"
            and "deletionTimestamp" not in each["metadata"]
        }

    def size(self, count: int) -> dict[str, Json]:
        """Exactly so many of the pods that vary run, and no other exists."""

        def found() -> dict[str, Json] | None:
            running = self.running(self._role)
            there = [
                each
                for each in self.members()
                if self._role in each["metadata"]["name"] and URGENT not in each["metadata"]["name"]
            ]
            return running if len(running) == len(there) == count else None

        return self.until(f"{count} pods", found)

    @contextmanager
    def urgent(self, pods: int, gpus: int) -> Iterator[None]:
        """A gang of a higher priority class runs meanwhile."""
        self.stage.apply_text(
            '{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"urgent"},"value":1000}'
        )
        made = [pod(f"{URGENT}-{number}", gpus) for number in range(pods)]
        for each in made:
            each["metadata"] |= {
                "labels": {GANG_LABEL: URGENT},
                "annotations": {GANG_MIN: str(pods)},
            }
            each["spec"]["priorityClassName"] = URGENT
        self.apply(*made)

        def up() -> bool:
            found = [each for each in self.members() if URGENT in each["metadata"]["name"]]
            return [each["status"].get("phase") for each in found] == ["Running"] * pods

        self.until("the urgent gang to run", up)
        yield
        for each in made:
            self.delete("pod", each["metadata"]["name"])

    def events(self, *reasons: str) -> list[str]:
        found = self.stage.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [each["message"] for each in found if each["reason"] in reasons]

    def gone_undisturbed(self) -> None:
        """Nobody was evicted: the object's controller has deleted whoever left."""
        assert not self.events("Evicted", "Preempted", "SizeRefused", "InvalidSpec")


def elastic(raw: Json, least: str, most: str) -> Json:
    raw["metadata"]["annotations"] = {ELASTIC_MIN: least, ELASTIC_MAX: most}
    return raw


def shrunk_to(play: Sized, span: str) -> int:
    """Its size without those who left for the urgent gang. Free seats that were left over it has taken again."""
    [told] = play.events("Shrank")
    size, _, rest = told.partition(" of ")
    assert rest == f"{span}: room for {URGENT}"
    return int(size)


def below(pods: dict[str, Json], label: str, size: int) -> set[str]:
    """Those whose number is below the size, which the controller keeps."""
    return {uid for uid, each in pods.items() if int(each["metadata"]["labels"][label]) < size}


def nodes_of(pods: dict[str, Json]) -> set[str]:
    return {each["spec"]["nodeName"] for each in pods.values()}


def indexes_of(pods: dict[str, Json], label: str) -> list[int]:
    return sorted(int(each["metadata"]["labels"][label]) for each in pods.values())


# --- JobSet ---------------------------------------------------------------------

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/train"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def replicated(role: str, jobs: int, pods: int, gpus: int) -> Json:
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(gpus)}
    return {"name": role, "replicas": jobs, "template": {"spec": spec}}


def jobset(jobs: int, pods: int) -> Json:
    """Any failed pod fails it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {
            "replicatedJobs": [replicated("driver", 1, 1, 0), replicated("workers", jobs, pods, 1)],
            "failurePolicy": {"maxRestarts": 0},
        },
    }


def workers_of(found: Json) -> Json:
    inside: Json = found["spec"]["replicatedJobs"][1]["template"]["spec"]
    return {key: inside[key] for key in ("parallelism", "completions")}


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_jobs_of_a_jobset_grow_and_give_way(sizing: Stage, jobs: int) -> None:
    with sizing.controller(sources.JOBSET, settings=ELASTIC_JOBSETS):
        play = Sized(sizing, f"elastic-jobset-{jobs}", JOBSETS, "-workers-")
        most = 16 // jobs
        play.apply(elastic(jobset(jobs, 2), "workers: 2", f"workers: {most}"))
        before = play.size(16)
        driver = play.running("-driver-")
        assert len(driver) == 1
        with play.urgent(2, 4):
            each = 8 // jobs
            left = play.size(8)
            size = shrunk_to(play, f"2 to {most}")
            stayed = below(before, COMPLETION_INDEX, size)
            assert len(stayed) == size * jobs
            assert stayed <= left.keys()
            assert indexes_of(left, COMPLETION_INDEX) == sorted([*range(each)] * jobs)
            assert workers_of(play.object) == {"parallelism": each, "completions": each}
        after = play.size(16)
        assert left.keys() < after.keys()
        assert play.running("-driver-").keys() == driver.keys()
        assert workers_of(play.object) == {"parallelism": most, "completions": most}
        status = play.object["status"]
        assert not status.get("restarts")
        assert not condition(status, "Failed")
        jobs_found = sizing.get(f"/apis/batch/v1/namespaces/{play.namespace}/jobs")["items"]
        assert [each["status"].get("failed", 0) for each in jobs_found] == [0] * (jobs + 1)
        play.gone_undisturbed()


def test_a_jobset_that_restarts_keeps_its_size(sizing: Stage) -> None:
    with sizing.controller(sources.JOBSET, settings=ELASTIC_JOBSETS):
        play = Sized(sizing, "elastic-jobset-restart", JOBSETS, "-workers-")
        raw = elastic(jobset(1, 2), "workers: 2", "workers: 16")
        raw["spec"]["failurePolicy"]["maxRestarts"] = 1
        play.apply(raw)
        first = play.size(16)
        name = next(iter(first.values()))["metadata"]["name"]
        play.delete("pod", name)
        play.until("the restart", lambda: play.object["status"].get("restarts") == 1)

        def again() -> bool:
            found = play.running("-workers-")
            return len(found) == 16 and found.keys().isdisjoint(first)

        play.until("all pods of the second attempt", again)
        assert workers_of(play.object) == {"parallelism": 16, "completions": 16}


def test_a_jobset_without_the_feature_gate_keeps_its_size_and_says_so(sizing: Stage) -> None:
    with sizing.controller(sources.JOBSET, settings={}):
        play = Sized(sizing, "rigid-jobset", JOBSETS, "-workers-")
        play.apply(elastic(jobset(1, 2), "workers: 2", "workers: 16"))
        play.size(2)
        [told] = play.until("the refusal", lambda: play.events("SizeRefused"))
        assert "JobSet 0.12 or newer with the feature gate ElasticJobSet" in told
        assert told.endswith("field is immutable")
        assert workers_of(play.object) == {"parallelism": 2, "completions": 2}
        play.size(2)


# --- LeaderWorkerSet ------------------------------------------------------------

LWS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets/serve"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


def leaderworkerset(groups: int) -> Json:
    """Groups of two pods with two GPUs each."""
    pods = {"size": 2, "workerTemplate": template(2, restarts=True)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {"replicas": groups, "leaderWorkerTemplate": pods},
    }


def test_groups_of_a_leaderworkerset_grow_and_give_way_whole(sizing: Stage) -> None:
    with sizing.controller(sources.LWS, ["--leader-elect=false"], settings={}):
        play = Sized(sizing, "elastic-lws", LWS, "serve-")
        play.apply(elastic(leaderworkerset(1), "1", "4"))
        before = play.size(8)
        play.until("four ready groups", lambda: play.object["status"].get("readyReplicas") == 4)
        with play.urgent(2, 4):
            left = play.size(4)
            stayed = below(before, GROUP_INDEX, shrunk_to(play, "1 to 4"))
            assert stayed
            assert stayed <= left.keys()
            assert indexes_of(left, GROUP_INDEX) == [0, 0, 1, 1]
            assert play.object["spec"]["replicas"] == 2
        after = play.size(8)
        assert left.keys() < after.keys()
        assert play.object["spec"]["replicas"] == 4
        play.until("four ready groups", lambda: play.object["status"].get("readyReplicas") == 4)
        play.gone_undisturbed()


def test_an_autoscaler_of_groups_has_them_alone_after_three_changes(sizing: Stage) -> None:
    """A patch of a Scale has no conflicts, unlike what is applied to a Deployment."""
    with sizing.controller(sources.LWS, ["--leader-elect=false"], settings={}):
        play = Sized(sizing, "contested-lws", LWS, "serve-")
        play.apply(elastic(leaderworkerset(1), "1", "2"))
        target = f"{LWS.format(play.namespace)}/scale?fieldManager=kube-controller-manager"
        meta = {"name": "serve", "namespace": play.namespace}
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
        body = orjson.dumps({**scale, "spec": {"replicas": 4}})
        for _ in range(3):
            play.until("two groups", lambda: play.object["spec"]["replicas"] == 2)
            reply = sizing.client.request("PUT", target, body)
            assert reply.ok, reply.error()
        [told] = play.until("the refusal", lambda: play.events("SizeRefused"))
        assert "another client changes spec.replicas, too, 3 times in 10 minutes" in told
        assert play.object["spec"]["replicas"] == 4
        play.size(8)


# --- KubeRay --------------------------------------------------------------------

RAY = "/apis/ray.io/v1/namespaces/{}/rayclusters/tune"


def kuberay() -> list[str]:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    flags = ("--metrics-addr", "--health-probe-bind-address")
    told = [f"{flag}={address}" for flag, address in zip(flags, addresses, strict=True)]
    return ["--enable-leader-election=false", *told]


def raycluster(*, own: bool) -> Json:
    """A head, two CPU workers, and GPU workers that vary. own: Ray's own autoscaler may set their number."""

    def group(name: str, most: int, gpus: int) -> Json:
        counts = {"replicas": 2, "minReplicas": 2, "maxReplicas": most}
        pods = template(gpus, restarts=True)
        return {"groupName": name, **counts, "rayStartParams": {}, "template": pods}

    groups = [group("cpu", 2, 0), group("gpu", 2 if own else 16, 1)]
    head = {"rayStartParams": {}, "template": template(0, restarts=True)}
    spec: Json = {"rayVersion": "2.40.0", "headGroupSpec": head, "workerGroupSpecs": groups}
    if own:
        spec["enableInTreeAutoscaling"] = True
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "tune"},
        "spec": spec,
    }


def gpu_group(found: Json) -> Json:
    group: Json = found["spec"]["workerGroupSpecs"][1]
    return group


def names_of(pods: dict[str, Json]) -> set[str]:
    return {each["metadata"]["name"] for each in pods.values()}


def check_that_a_node_was_given(play: Sized, before: dict[str, Json], size: str) -> dict[str, Json]:
    """While others have eight of the GPUs. Returns those who stay."""
    left = play.size(8)
    assert left.keys() < before.keys()
    assert len(nodes_of(left)) == 1, "a whole node was given, so those who left were chosen"
    group = gpu_group(play.object)
    assert group["replicas"] == 8
    gone = names_of(before) - names_of(left)
    assert set(group["scaleStrategy"]["workersToDelete"]) == gone
    assert play.events("Shrank") == [f"{size}: room for {URGENT}"]
    return left


def test_workers_of_a_ray_cluster_grow_and_give_way_by_name(sizing: Stage) -> None:
    with sizing.controller(sources.KUBERAY, kuberay()):
        play = Sized(sizing, "elastic-ray", RAY, "-gpu-")
        play.apply(elastic(raycluster(own=False), "gpu: 2", "gpu: 16"))
        before = play.size(16)
        others = {**play.running("-cpu-"), **play.running("-head-")}
        assert len(others) == 3
        with play.urgent(1, 8):
            left = check_that_a_node_was_given(play, before, "8 of 2 to 16")
        after = play.size(16)
        assert left.keys() < after.keys()
        assert gpu_group(play.object)["replicas"] == 16
        assert {**play.running("-cpu-"), **play.running("-head-")}.keys() == others.keys()
        play.until("ready", lambda: play.object["status"].get("readyWorkerReplicas") == 18)
        play.gone_undisturbed()


def test_rays_own_autoscaler_keeps_to_what_it_is_given(sizing: Stage) -> None:
    """The test writes what Ray's autoscaler writes, a process in the head's pod: the number of workers."""
    with sizing.controller(sources.KUBERAY, kuberay()):
        play = Sized(sizing, "elastic-ray-own", RAY, "-gpu-")
        play.apply(elastic(raycluster(own=True), "gpu: 2", "gpu: 16"))
        play.until("its ceiling", lambda: gpu_group(play.object)["maxReplicas"] == 16)
        play.size(2)
        set_replicas(play, 16)
        before = play.size(16)
        with play.urgent(1, 8):
            left = check_that_a_node_was_given(play, before, "8 of 2 to 16")
            assert gpu_group(play.object)["maxReplicas"] == 8
        play.until("its ceiling again", lambda: gpu_group(play.object)["maxReplicas"] == 16)
        assert play.size(8).keys() == left.keys(), "it has asked for no more yet"
        set_replicas(play, 12)
        assert left.keys() < play.size(12).keys()
        play.gone_undisturbed()


def set_replicas(play: Sized, count: int) -> None:
    groups: list[Any] = play.object["spec"]["workerGroupSpecs"]
    groups[1]["replicas"] = count
    groups[1]["scaleStrategy"] = {"workersToDelete": []}
    play.stage.patch(RAY.format(play.namespace), {"spec": {"workerGroupSpecs": groups}})
