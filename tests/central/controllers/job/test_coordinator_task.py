"""Plugin elastic with a coordinator: its Secret, its pod, its members."""

from dataclasses import replace
from typing import Any

import pytest

from central.controllers.job import plugins
from central.model.decisions import Create
from central.model.jobspec import ElasticTask, JobSpec, TaskSpec
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.plan_stories import elastic_job

Json = dict[str, Any]


def job(*arguments: str, svc: bool = True) -> JobSpec:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    tasks = (
        TaskSpec(
            "coordinator", 1, 1, {"spec": {"containers": [{"name": "c", "image": "lockstep"}]}}
        ),
        TaskSpec("worker", 8, 2, {"spec": {"containers": [{"name": "m", **gpus}]}}),
    )
    given = arguments or ("--task=worker", "--coordinator=coordinator", "--store=file:/state/q.db")
    named = (("elastic", given), *((("svc", ()),) if svc else ()))
    elastic = ElasticTask("worker", 2, 8)
    return JobSpec("team", "train", "uid-12345678", tasks, plugins=named, elastic=elastic)


def pod(spec: JobSpec, name: str, index: int) -> Json:
    task = spec.task(name)
    assert task is not None
    return plugins.decorate(
        spec, task, index, {"metadata": {}, "spec": dict(task.template["spec"])}
    )


def files(made: Json) -> set[str]:
    (volume,) = (one for one in made["spec"]["volumes"] if one["name"] == "lockstep-coordinator")
    return {item["key"] for item in volume["secret"]["items"]}


def test_members_reach_the_coordinator_and_have_no_key() -> None:
    spec = job()
    assert plugins.check(spec) == ""
    made = pod(spec, "worker", 5)
    found = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
    assert found["LOCKSTEP_COORDINATOR"] == "https://train-coordinator-0.train:28700"
    assert found["LOCKSTEP_MEMBER"] == "5"
    assert "LOCKSTEP_GPUS" not in found  # the node's agent sets it
    assert found["LOCKSTEP_ADDRESS"] == "train-worker-5.train"
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("2:8", "4")
    assert found["PET_RDZV_BACKEND"] == "lockstep"
    assert found["PET_RDZV_ENDPOINT"] == "train-coordinator-0.train:28700"
    assert files(made) == {"token", "ca.crt"}


def test_a_member_says_which_pod_it_is_and_where() -> None:
    """The kubelet fills these in: the pod's author cannot know them."""
    (container,) = pod(job(), "worker", 5)["spec"]["containers"]
    found = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container["env"]
        if "fieldRef" in one.get("valueFrom", {})
    }
    assert found == {
        "LOCKSTEP_POD": "metadata.name",
        "LOCKSTEP_POD_UID": "metadata.uid",
        "LOCKSTEP_NODE": "spec.nodeName",
    }


def test_torchrun_runs_in_no_init_container() -> None:
    """It may reach the coordinator as the others do."""
    spec = job()
    template = {"spec": {**spec.tasks[1].template["spec"], "initContainers": [{"name": "i"}]}}
    spec = replace(spec, tasks=(spec.tasks[0], replace(spec.tasks[1], template=template)))
    (first,) = pod(spec, "worker", 5)["spec"]["initContainers"]
    names = {one["name"] for one in first["env"]}
    assert "LOCKSTEP_COORDINATOR" in names
    assert not {name for name in names if name.startswith("PET_RDZV")}


@pytest.mark.parametrize("task", ["worker", "coordinator"])
def test_everybody_in_the_pod_may_read_the_credentials_and_nobody_write(task: str) -> None:
    """Also a container that does not run as root."""
    made = pod(job(), task, 0)
    volumes = {one["name"]: one for one in made["spec"]["volumes"]}
    secret = volumes["lockstep-coordinator"]["secret"]
    assert secret["secretName"] == "train-elastic-uid-1234"
    assert secret["defaultMode"] == 0o444
    if task == "coordinator":
        assert volumes["lockstep-scheduler"]["projected"]["defaultMode"] == 0o444
    for container in made["spec"]["containers"]:
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert mounts["lockstep-coordinator"] == "/etc/lockstep/coordinator"


def test_a_secret_of_an_earlier_version_does_not_keep_the_coordinator_from_starting() -> None:
    """It says nothing of the scheduler. A member's credentials must be there."""

    def optional(task: str) -> bool:
        volumes = pod(job(), task, 0)["spec"]["volumes"]
        (found,) = (one for one in volumes if one["name"] == "lockstep-coordinator")
        return found["secret"].get("optional", False) is True

    assert optional("coordinator")
    assert not optional("worker")


def test_the_coordinator_is_ready_when_it_answers_on_its_port() -> None:
    (container,) = pod(job(), "coordinator", 0)["spec"]["containers"]
    assert container["ports"] == [{"name": "coordinator", "containerPort": 28700}]
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/readyz", "port": 28700, "scheme": "HTTPS"}
    }


def test_the_coordinators_pod_runs_it() -> None:
    made = pod(job(), "coordinator", 0)
    (container,) = made["spec"]["containers"]
    assert container["command"][:2] == ["lockstep", "coordinate"]
    assert {
        "--job=team/train/uid-12345678",
        "--least=2",
        "--most=8",
        "--store=file:/state/q.db",
        "--hang-after=60",
        "--on-hang=warn",
    } <= {*container["command"]}
    assert not [
        each
        for each in container["command"]
        if "-slow" in each
        or "preflight" in each
        or "spares" in each
        or "--replica" in each
        or "--answer" in each
    ]
    checked = job()
    (elastic,) = (each for each in checked.plugins if each[0] == "elastic")
    given = {"--preflight=60", "--replace-slow=300", "--spares=2", "--replica=2"}
    more = ("elastic", (*elastic[1], *given))
    plugins = tuple(more if each is elastic else each for each in checked.plugins)
    (checking,) = pod(replace(checked, plugins=plugins), "coordinator", 0)["spec"]["containers"]
    assert given | {"--answer=1.5"} <= {*checking["command"]}
    assert "LOCKSTEP_MEMBER" not in {one["name"] for one in container.get("env") or ()}
    assert files(made) == {"token", "tls.crt", "tls.key", "scheduler-address", "scheduler-ca.crt"}
    (token,) = (one for one in made["spec"]["volumes"] if one["name"] == "lockstep-scheduler")
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "lockstep-coordinator"
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert "/var/run/secrets/lockstep/scheduler" in mounts


@pytest.mark.parametrize(
    "own",
    [
        {"args": ["coordinate", "--spares=1"]},
        {"command": ["my-coordinator"]},
        {"readinessProbe": {"tcpSocket": {"port": 1}}},
    ],
)
def test_what_the_coordinators_author_writes_stays(own: Json) -> None:
    spec = job()
    template = {"spec": {"containers": [{"name": "c", **own}]}}
    spec = replace(spec, tasks=(replace(spec.tasks[0], template=template), spec.tasks[1]))
    (container,) = pod(spec, "coordinator", 0)["spec"]["containers"]
    assert {key: container[key] for key in own} == own
    assert ("command" in container) is ("args" not in own)


def test_its_task_needs_host_names_that_differ() -> None:
    spec = job()
    template = {"spec": {**spec.tasks[1].template["spec"], "hostname": "h"}}
    spec = replace(spec, tasks=(spec.tasks[0], replace(spec.tasks[1], template=template)))
    assert "the pods of task worker all have the same hostname" in plugins.check(spec)


def test_the_secret_has_a_certificate_for_the_coordinators_names() -> None:
    (secret,) = (one for one in plugins.objects(job()) if one.kind == "Secret")
    assert secret.name == "train-elastic-uid-1234"
    assert secret.body["type"] == "Opaque"
    assert secret.body["metadata"]["ownerReferences"][0]["uid"] == job().uid
    assert secret.certificate == (
        "train-coordinator-0.train",
        "train-coordinator-0.train.team",
        "train-coordinator-0.train.team.svc",
    )
    assert not [one for one in plugins.objects(job("--task=worker")) if one.kind == "Secret"]


def test_the_call_for_the_secret_asks_for_the_certificate() -> None:
    api = Api()
    api.apply(elastic_job())
    made = [each for _ in range(4) for each in api.step() if isinstance(each, Create)]
    [names] = [each.certificate for each in made if each.kind == "Secret"]
    assert names == tuple(f"j-coordinator-0.j{end}" for end in ("", ".ns", ".ns.svc"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--coordinator=x",), '--coordinator: the job has no task "x"'),
        (("--coordinator=worker",), "--coordinator: task worker is the elastic one"),
        (
            ("--task=coordinator", "--coordinator=worker"),
            "task worker has 8 pods; it must have one",
        ),
        (
            ("--coordinator=coordinator", "--spares=7"),
            "--spares: 7 exceeds the 6 pods of task worker above its minAvailable",
        ),
        (
            ("--coordinator=coordinator", "--replica=4"),
            "--replica: 4 does not divide minAvailable 2",
        ),
        (
            ("--coordinator=coordinator", "--replica=2", "--step=3"),
            "--replica: 2 does not divide --step 3",
        ),
        (
            ("--coordinator=coordinator", "--replica=2", "--spares=1"),
            "--replica: 2 does not divide --spares 1",
        ),
        (("--replica=2",), "--replica: needs --coordinator"),
        (("--store=redis",), '--store: "redis" is none of api, none and file:/PATH'),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: tuple[str, ...], told: str) -> None:
    assert told in plugins.check(job(*arguments))


def test_all_members_above_the_least_may_be_spares() -> None:
    assert plugins.check(job("--coordinator=coordinator", "--spares=6")) == ""


def test_two_jobs_with_the_same_endpoint() -> None:
    """In two namespaces, or one after the other: what comes to the wrong coordinator has another token, and torchrun
    another rendezvous."""

    def told(spec: JobSpec) -> tuple[str, str, str, list[str]]:
        made = pod(spec, "worker", 0)
        (volume,) = (v for v in made["spec"]["volumes"] if v["name"] == "lockstep-coordinator")
        found = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
        command = pod(spec, "coordinator", 0)["spec"]["containers"][0]["command"]
        return (
            found["LOCKSTEP_COORDINATOR"],
            volume["secret"]["secretName"],
            found["PET_RDZV_ID"],
            [each for each in command if each.startswith("--job=")],
        )

    first, second = told(job()), told(replace(job(), uid="87654321-uid"))
    assert first[0] == second[0]
    assert first[1:] == (
        "train-elastic-uid-1234",
        "uid-12345678",
        ["--job=team/train/uid-12345678"],
    )
    assert second[1:] == (
        "train-elastic-87654321",
        "87654321-uid",
        ["--job=team/train/87654321-uid"],
    )


def test_it_needs_the_host_names() -> None:
    assert "needs plugin svc" in plugins.check(job(svc=False))


@pytest.mark.parametrize("svc", [(), ("--disable-network-policy",)])
def test_its_port_is_open_to_the_jobs_pods_only(svc: tuple[str, ...]) -> None:
    spec = replace(job(), plugins=(job().plugins[0], ("svc", svc)))
    assert plugins.check(spec) == ""
    found = {one.name: one.body for one in plugins.objects(spec) if one.kind == "NetworkPolicy"}
    assert ("train" in found) is (not svc)
    own = found["train-coordinator"]
    (rule,) = own["spec"]["ingress"]
    (peer,) = rule["from"]
    assert own["spec"]["policyTypes"] == ["Ingress"]
    assert rule["ports"] == [{"port": 28700, "protocol": "TCP"}]
    pods = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "team"}
    assert peer == {"podSelector": {"matchLabels": pods}}, "and of this namespace"
    chosen = own["spec"]["podSelector"]["matchLabels"]
    assert chosen == {**pods, "volcano.sh/task-spec": "coordinator"}
    assert own["metadata"]["ownerReferences"][0]["uid"] == spec.uid
