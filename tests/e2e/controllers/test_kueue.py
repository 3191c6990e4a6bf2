"""Kueue in front: it admits by quota, and Lockstep places. Page: docs/how-to/other-tools.md"""

import copy
from collections.abc import Iterator

import pytest
import yaml

from central.model.json_types import Json
from protos.names import GANG_LABEL, GANG_MIN, GPU
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
API = "kueue.x-k8s.io/v1beta2"
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
ARGV = ["--feature-gates=VisibilityOnDemand=false"]  # an API server of its own
GROUP, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


def grant(play: Play, gpus: int) -> None:
    """The quota of the queue, with its objects."""
    quota = {"name": "gpus", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    cluster_queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
    }
    flavor = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "gpus"}}
    of_all = {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": "gpus"}}
    local = {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": "research"}}
    play.stage.apply_text(yaml.safe_dump_all([flavor, {**of_all, "spec": cluster_queue}]))
    play.apply({**local, "spec": {"clusterQueue": "gpus"}})


def gang(**labels: str) -> Json:
    """A pod template of a gang of two pods with eight GPUs each."""
    made = copy.deepcopy(template(8))
    made["metadata"] = {"labels": {GANG_LABEL: "train", **labels}, "annotations": {GANG_MIN: "2"}}
    container = made["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: "8"}}
    return made


def job() -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": QUEUE},
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "template": gang(),
        },
    }


def member(index: int) -> Json:
    made = gang(**QUEUE, **{GROUP: "train"})
    made["metadata"]["annotations"][GROUP_SIZE] = "2"
    made["metadata"]["name"] = f"train-{index}"
    return {"apiVersion": "v1", "kind": "Pod", **made}


@pytest.fixture(scope="module")
def kueue(stage: Stage) -> Iterator[Stage]:
    with stage.controller(sources.KUEUE, ARGV, settings={}):
        yield stage
        # Kueue converts its objects, so nobody can read them once it has ended.
        kinds = stage.kubectl("get", "crd", "-o", "name").split()
        mine = [kind for kind in kinds if kind.endswith("kueue.x-k8s.io")]
        stage.kubectl("delete", *mine, "--timeout=60s")


def test_a_job_is_admitted_by_kueue_and_placed_whole(kueue: Stage) -> None:
    play = Play(kueue, "kueue-job")
    grant(play, 8)
    where = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{play.namespace}/workloads"
    play.apply(job())
    play.until("Kueue to find too little quota", lambda: "insufficient" in str(kueue.get(where)))
    assert play.members() == [], "Kueue keeps it suspended"
    with play.occupied():
        grant(play, 16)
        play.waits_whole("train", 2, "needs 2 pods x 8 GPUs; the cluster fits 1 of 2")
    play.runs_whole("train", 2)
    play.delete("job", "train")
    play.until("its pods to be gone", lambda: not play.members())


def test_pods_that_kueue_gates_wait_for_its_admission(kueue: Stage) -> None:
    play = Play(kueue, "kueue-pods")
    grant(play, 8)
    play.apply(member(0), member(1))
    play.waits_whole("train", 2, "held by scheduling gates")
    grant(play, 16)
    play.runs_whole("train", 2)
    for index in range(2):
        play.delete("pod", f"train-{index}")
    play.delete("workloads.kueue.x-k8s.io", "train")  # Kueue waits for replacements till then
    play.until("its pods to be gone", lambda: not play.members())
