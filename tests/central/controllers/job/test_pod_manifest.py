"""The pods of a Job as they are created: the Job's settings, and what a template sets itself."""

from dataclasses import replace
from typing import Any

from central.controllers.job import pod_manifest
from central.model.jobspec import JobSpec, JobStatus, TaskSpec, VolumeSpec
from protos.names import GROUP_NAMES

SHARED = VolumeSpec("/data", "shared", None)


def spec(template: dict[str, Any], **more: Any) -> JobSpec:
    task = TaskSpec("w", 2, 2, {"spec": template})
    return JobSpec("lab", "train", "uid-1", (task,), 2, **more)


def made(job: JobSpec) -> Any:
    return pod_manifest.manifest(job, JobStatus(), job.tasks[0], 1)


def test_what_a_template_sets_itself_stays() -> None:
    own = {"priorityClassName": "own", "schedulerName": "other", "dnsPolicy": "Default"}
    job = spec({"containers": [], "hostNetwork": True, **own}, priority_class="jobs")
    assert own.items() <= made(job)["spec"].items()
    bare = spec({"containers": [], "hostNetwork": True}, priority_class="jobs")
    given = {"priorityClassName": "jobs", "dnsPolicy": "ClusterFirstWithHostNet"}
    assert {**given, "schedulerName": bare.scheduler_name}.items() <= made(bare)["spec"].items()
    assert "priorityClassName" not in made(replace(bare, priority_class=""))["spec"]
    assert "dnsPolicy" not in made(spec({"containers": []}))["spec"]


def test_volumes_are_mounted_beside_those_of_a_container() -> None:
    """In init containers as well, and not over what a container mounts at that path itself."""
    mine, theirs = {"name": "own", "mountPath": "/own"}, {"name": "own", "mountPath": "/data"}
    template = {
        "volumes": [{"name": "own", "emptyDir": {}}],
        "initContainers": [{"name": "first", "volumeMounts": [mine]}],
        "containers": [{"name": "main"}, {"name": "side", "volumeMounts": [theirs]}],
    }
    pod = made(spec(template, volumes=(SHARED,)))["spec"]
    [own, shared] = pod["volumes"]
    assert own == template["volumes"][0]  # type: ignore[index]  # a list of volumes
    assert shared["persistentVolumeClaim"] == {"claimName": "shared"}
    mount = {"name": shared["name"], "mountPath": "/data"}
    assert pod["initContainers"][0]["volumeMounts"] == [mine, mount]
    assert [each["volumeMounts"] for each in pod["containers"]] == [[mount], [theirs]]


def test_a_pod_names_its_gang_its_task_and_its_place() -> None:
    pod = made(spec({"containers": []}))["metadata"]
    assert pod["annotations"][GROUP_NAMES[0]] == "train-uid-1"
    for key, value in (("task-spec", "w"), ("task-index", "1"), ("queue-name", "default")):
        assert (
            pod["labels"][f"volcano.sh/{key}"] == pod["annotations"][f"volcano.sh/{key}"] == value
        )
