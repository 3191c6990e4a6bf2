"""Sizes of controllers' objects, as requests and as what the API server answers."""

from typing import Any

import pytest

from central.kube.write import size_writer
from central.kube.write.retrying import Retry
from central.model.decisions import SetSize
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure, missing

APPS = "/apis/apps/v1/namespaces/ns"
SCALE: Any = {"kind": "Scale", "metadata": {"name": "e", "uid": "u"}, "spec": {"replicas": 4}}
JOB: Any = {"kind": "Job", "metadata": {"name": "e", "uid": "u"}, "spec": {"parallelism": 4}}


def conflict(*managers: str) -> Answer:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{each}"', "field": ".spec"}
        for each in managers
    ]
    return failure(409, "Apply failed", reason="Conflict", details={"causes": causes})


def asked(kind: str = "Deployment", **more: Any) -> SetSize:
    return SetSize(kind, "ns", "e", "u", 4, **more)


@pytest.fixture
def write(request: pytest.FixtureRequest, connected: Any) -> Any:
    def act(decision: SetSize, *answers: Answer) -> tuple[Any, list[Call]]:
        left = list(answers)
        with Scripted(lambda call: left.pop(0)) as api:
            return size_writer.write(connected(api.url), decision), api.calls

    return act


def test_the_scale_is_applied_without_force(write: Any) -> None:
    done, [call] = write(asked(), Answer(200, SCALE))
    assert (done.why, done.uid) == ("", "u")
    assert (call.method, call.path) == ("PATCH", f"{APPS}/deployments/e/scale")
    assert call.query == "fieldManager=lockstep-elastic"
    assert call.headers["content-type"] == "application/apply-patch+yaml"
    assert call.body["spec"] == {"replicas": 4}
    assert call.body["metadata"]["uid"] == "u"


def test_a_job_has_its_completions_changed_with_it_where_they_follow(write: Any) -> None:
    _, [plain] = write(asked("Job"), Answer(200, JOB))
    _, [both] = write(asked("Job", completions=True), Answer(200, JOB))
    assert plain.path == "/apis/batch/v1/namespaces/ns/jobs/e"
    assert plain.body["spec"] == {"parallelism": 4}
    assert both.body["spec"] == {"parallelism": 4, "completions": 4}


def test_those_who_leave_are_marked_before_the_size_changes(write: Any) -> None:
    decision = asked(leaving=(("e-1", "u1"), ("e-2", "u2")), rank=77)
    done, calls = write(decision, Answer(200), missing("pods", "e-2"), Answer(200, SCALE))
    assert not done.why, "a pod that is gone is no matter"
    pods = [call.path.partition("/ns/")[2] for call in calls]
    assert pods == ["pods/e-1/status", "pods/e-2/status", "deployments/e/scale"]
    notes = calls[0].body["metadata"]
    assert notes["annotations"] == {"controller.kubernetes.io/pod-deletion-cost": "-77"}
    assert notes["uid"] == "u1"


def test_what_the_manifests_author_wrote_is_replaced(write: Any) -> None:
    done, calls = write(asked(), conflict("kubectl-client-side-apply"), Answer(200, SCALE))
    assert not done.why
    assert calls[1].query == "fieldManager=lockstep-elastic&force=true"


def test_a_horizontalpodautoscaler_is_not_fought(write: Any) -> None:
    done, calls = write(asked(), conflict("kubectl", "kube-controller-manager"))
    assert len(calls) == 1
    assert (done.code, done.uid) == (409, "")
    assert done.why == (
        "a HorizontalPodAutoscaler writes spec.replicas; delete it, or the annotation lockstep.dev/elastic-min"
    )


def test_another_conflict_is_no_conflict_of_managers(write: Any) -> None:
    answer = failure(409, "Precondition failed: UID in precondition", reason="Conflict")
    done, calls = write(asked(), answer)
    assert len(calls) == 1
    assert "Precondition" in done.why


def test_an_object_that_is_gone(write: Any) -> None:
    done, _ = write(asked(), missing("deployments.apps", "e"))
    assert (done.code, done.why) == (404, "the object is gone")


def test_a_missing_right_names_the_component(write: Any) -> None:
    done, _ = write(asked(), failure(403, "deployments/scale is forbidden"))
    assert done.why == "deployments/scale is forbidden; components/elastic has the right"


def test_an_unknown_outcome_is_repeated(write: Any) -> None:
    with pytest.raises(Retry):
        write(asked(), failure(503, "busy"))


def test_one_replicatedjob_is_applied_by_its_name(write: Any) -> None:
    jobset: Any = {"kind": "JobSet", "metadata": {"name": "e", "uid": "u"}}
    done, [call] = write(asked("JobSet", completions=True, role="workers"), Answer(200, jobset))
    assert not done.why
    assert call.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/e"
    sizes = {"parallelism": 4, "completions": 4}
    assert call.body["spec"] == {
        "replicatedJobs": [{"name": "workers", "template": {"spec": sizes}}]
    }
    assert (call.body["apiVersion"], call.body["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


@pytest.mark.parametrize("status", [403, 422])
def test_a_jobset_that_may_not_change_names_version_and_gate(write: Any, status: int) -> None:
    why = "admission webhook denied the request: spec.replicatedJobs: field is immutable"
    done, _ = write(asked("JobSet", role="workers"), failure(status, why))
    assert "needs JobSet 0.12 or newer with the feature gate ElasticJobSet" in done.why
    assert done.why.endswith(why)
    done, _ = write(asked("JobSet", role="workers"), failure(403, "jobsets is forbidden"))
    assert done.why == "jobsets is forbidden; components/elastic has the right"


def test_of_a_long_refusal_beginning_and_end_are_said(write: Any) -> None:
    why = (
        "admission webhook denied the request: Invalid value: "
        + "x" * 2**20
        + ": field is immutable"
    )
    done, _ = write(asked("JobSet", role="workers"), failure(422, why))
    assert "denied the request" in done.why
    assert done.why.endswith("xxx: field is immutable")
    assert len(done.why) < 500
    whole = "denied: " + "y" * 292
    done, _ = write(asked(), failure(422, whole))
    assert done.why == whole


def test_groups_of_a_leaderworkerset_have_a_scale_that_is_patched(write: Any) -> None:
    done, [call] = write(asked("LeaderWorkerSet"), Answer(200, SCALE))
    assert (done.why, done.uid) == ("", "u")
    where = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/e/scale"
    assert (call.method, call.path, call.query) == ("PATCH", where, "fieldManager=lockstep-elastic")
    assert call.headers["content-type"] == "application/json-patch+json"
    assert call.body == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/spec/replicas", "value": 4},
    ]


RAY: Any = {"kind": "RayCluster", "metadata": {"name": "e", "uid": "u"}}


def ray(**more: Any) -> SetSize:
    return asked("RayCluster", role="gpu", place=1, **more)


def test_a_worker_group_is_patched_in_its_place_and_names_who_leaves(write: Any) -> None:
    leaving = (("w-1", "u1"), ("w-2", "u2"))
    done, [call] = write(ray(leaving=leaving, rank=7), Answer(200, RAY))
    assert not done.why
    assert call.path == "/apis/ray.io/v1/namespaces/ns/rayclusters/e"
    assert call.headers["content-type"] == "application/json-patch+json"
    group = "/spec/workerGroupSpecs/1"
    assert call.body == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": f"{group}/groupName", "value": "gpu"},
        {
            "op": "add",
            "path": f"{group}/scaleStrategy",
            "value": {"workersToDelete": ["w-1", "w-2"]},
        },
        {"op": "add", "path": f"{group}/replicas", "value": 4},
    ]


@pytest.mark.parametrize(
    ("leaving", "fields"), [((), ["maxReplicas"]), ((("w-1", "u1"),), ["maxReplicas", "replicas"])]
)
def test_rays_own_autoscaler_is_given_a_ceiling(write: Any, leaving: Any, fields: Any) -> None:
    _, [call] = write(ray(ceiling=True, leaving=leaving), Answer(200, RAY))
    changed = [each["path"].rpartition("/")[2] for each in call.body if each["op"] == "add"]
    assert changed == ["scaleStrategy", *fields]


def test_a_worker_group_in_another_place_is_said(write: Any) -> None:
    answer = failure(422, "the server rejected our request: testing path failed", reason="Invalid")
    done, _ = write(ray(), answer)
    assert "testing path failed" in done.why
