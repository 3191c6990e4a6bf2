"""JobSet's controller: all its Jobs are one gang, also when a failure makes it create them again."""

import pytest

from central.model.json_types import Json
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, condition, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
WHERE = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/jobset/jobsets/train"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


def replicated(role: str, pods: int, gpus: int) -> Json:
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(gpus)}
    return {"name": role, "replicas": 1, "template": {"spec": spec}}


def jobset() -> Json:
    jobs = [replicated("driver", 1, 0), replicated("workers", 2, 8)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 1}},
    }


def status(play: Play) -> Json:
    found: Json = play.stage.get(WHERE).get("status", {})
    return found


def test_a_jobset_waits_runs_restarts_and_completes(stage: Stage) -> None:
    with stage.controller(sources.JOBSET, settings={}):
        play, gang = Play(stage, "jobset"), "jobset/train"
        with play.occupied():
            play.apply(jobset())
            play.waits_whole(gang, 3, "needs 1 pod and 2 pods x 8 GPUs; the cluster fits")
        first = play.runs_whole(gang, 3)

        worker = next(each for each in first if "workers" in each["metadata"]["name"])
        play.delete("pod", worker["metadata"]["name"])
        play.until("the restart", lambda: status(play).get("restarts") == 1)
        play.until(
            "all pods of the second attempt to be placed",
            lambda: [each["metadata"]["labels"][ATTEMPT] for each in play.placed()] == ["1"] * 3,
        )
        play.until("it to complete", lambda: condition(status(play), "Completed") == "True")
        play.delete("jobset", "train")
        play.until("its pods to be gone", lambda: not play.members())
