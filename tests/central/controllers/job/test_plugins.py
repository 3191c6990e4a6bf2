"""Job plugins as their users see them: what a pod is told, what is made beside it, what is refused."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from central.controllers.job import plugins, pod_manifest
from central.controllers.job.plugins import PLUGINS
from central.model.jobspec import ElasticTask, JobSpec, JobStatus, TaskSpec, pod_name

Json = dict[str, Any]


def template(*containers: str, **spec: Any) -> Json:
    made = [{"name": name, "image": "x"} for name in containers or ("main",)]
    return {"spec": {"containers": made, **spec}}


def task(name: str, replicas: int, gpus: int = 0, **spec: Any) -> TaskSpec:
    limits = (("nvidia.com/gpu", gpus),) if gpus else ()
    return TaskSpec(name, replicas, replicas, template(**spec), limits=limits, requests=limits)


def job(*tasks: TaskSpec, **named: list[str]) -> JobSpec:
    listed = tuple((name, tuple(arguments)) for name, arguments in named.items())
    return JobSpec("lab", "train", "uid-1", tasks or (task("worker", 2),), plugins=listed)


def pod(spec: JobSpec, name: str, index: int) -> Json:
    """What the controller would create."""
    one = spec.task(name)
    assert one
    bare = {"metadata": {"name": pod_name(spec, one, index)}, **one.template}
    kept = copy.deepcopy(bare)
    made = plugins.decorate(spec, one, index, bare)
    assert bare == kept, "a template is never written to"
    return made


def env(made: Json, container: int = 0) -> dict[str, Any]:
    listed = made["spec"]["containers"][container]["env"]
    names = [one["name"] for one in listed]
    assert len(names) == len(set(names))
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in listed}


def made(spec: JobSpec) -> dict[tuple[str, str], Json]:
    assert plugins.check(spec) == ""
    found = {(one.kind, one.name): one.body for one in plugins.objects(spec)}
    for body in found.values():
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "uid-1", True)
        assert body["metadata"]["namespace"] == "lab"
    return found


# --- env


def test_env_numbers_the_pods_of_a_task() -> None:
    spec = job(task("worker", 12, initContainers=[{"name": "first"}]), env=[])
    told = pod(spec, "worker", 11)
    assert env(told) == {"VK_TASK_INDEX": "11", "VC_TASK_INDEX": "11"}
    assert told["spec"]["initContainers"][0]["env"] == told["spec"]["containers"][0]["env"]


def test_a_containers_own_variables_may_speak_of_ours() -> None:
    own = [{"name": "ID", "value": "n-$(VC_TASK_INDEX)"}, {"name": "VK_TASK_INDEX", "value": "9"}]
    one = replace(task("a", 1), template={"spec": {"containers": [{"name": "m", "env": own}]}})
    listed = pod(job(one, env=[], svc=[]), "a", 0)["spec"]["containers"][0]["env"]
    names = [entry["name"] for entry in listed]
    assert names.index("VC_TASK_INDEX") < names.index("ID")
    assert listed[names.index("VK_TASK_INDEX")]["value"] == "0"


# --- svc


def test_svc_tells_everybody_the_hosts() -> None:
    spec = job(task("ps", 1), task("big-worker", 2), svc=[])
    found = made(spec)
    assert found["ConfigMap", "train-svc"]["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "big_worker.host": "train-big-worker-0.train\ntrain-big-worker-1.train",
        "VC_BIG_WORKER_HOSTS": "train-big-worker-0.train,train-big-worker-1.train",
        "VC_BIG_WORKER_NUM": "2",
    }
    service = found["Service", "train"]["spec"]
    labels = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "lab"}
    assert (service["clusterIP"], service["selector"]) == ("None", labels)
    policy = found["NetworkPolicy", "train"]["spec"]
    assert policy["podSelector"] == {"matchLabels": labels}
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]

    told = pod(spec, "big-worker", 1)["spec"]
    assert (told["hostname"], told["subdomain"]) == ("train-big-worker-1", "train")
    assert told["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]
    (mount,) = told["containers"][0]["volumeMounts"]
    assert mount == {"name": "train-svc", "mountPath": "/etc/volcano"}
    reference = {"configMapKeyRef": {"name": "train-svc", "key": "VC_PS_HOSTS"}}
    assert env({"spec": told})["VC_PS_HOSTS"] == reference


def test_svcs_arguments() -> None:
    spec = job(svc=["--publish-not-ready-addresses", "false", "--disable-network-policy"])
    assert plugins.check(spec) != ""  # a flag's value comes with =
    spec = job(svc=["--publish-not-ready-addresses=false", "--disable-network-policy"])
    found = made(spec)
    assert ("NetworkPolicy", "train") not in found
    assert found["Service", "train"]["spec"]["publishNotReadyAddresses"] is False
    quiet = job(svc=["--inject-hosts-env=false"])
    assert "env" not in pod(quiet, "worker", 0)["spec"]["containers"][0]
    assert made(job(svc=[]))["Service", "train"]["spec"]["publishNotReadyAddresses"] is True


def test_a_template_that_names_its_host_keeps_it() -> None:
    spec = job(task("head", 1, hostname="boss", subdomain="office"), task("b", 1), svc=[])
    assert made(spec)["ConfigMap", "train-svc"]["data"]["head.host"] == "boss.office"
    told = pod(spec, "head", 0)["spec"]
    assert (told["hostname"], told["subdomain"]) == ("boss", "office")


def test_a_host_of_the_nodes_network_still_finds_names() -> None:
    spec = job(task("a", 1, hostNetwork=True), task("b", 1), svc=[])
    assert pod(spec, "a", 0)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "dnsPolicy" not in pod(spec, "b", 0)["spec"]


def test_only_the_hosts_follow_the_jobs_size() -> None:
    follows = {one.kind for one in plugins.objects(job(svc=[], ssh=[])) if one.follows}
    assert follows == {"ConfigMap"}


# --- ssh


def test_ssh_brings_keys_that_are_made_once() -> None:
    spec = job(ssh=[])
    (secret,) = plugins.objects(spec)
    assert (secret.kind, secret.name, secret.keys) == ("Secret", "train-ssh-uid-1", True)
    config = secret.body["stringData"]["config"]
    assert "Host train-* !*.*\n  HostName %h.train\n" in config
    assert "StrictHostKeyChecking no" in config
    told = pod(spec, "worker", 0)["spec"]
    (volume,) = told["volumes"]
    assert volume["secret"]["defaultMode"] == 0o600
    assert {item["path"] for item in volume["secret"]["items"]} == {
        *(".ssh/id_rsa", ".ssh/id_rsa.pub", ".ssh/authorized_keys", ".ssh/config")
    }
    (mount,) = told["containers"][0]["volumeMounts"]
    assert mount == {"name": "ssh-keys", "mountPath": "/root/.ssh", "subPath": ".ssh"}


def test_sshs_arguments() -> None:
    spec = job(
        ssh=[
            *("--ssh-key-file-path=/home/me/.ssh", "--ssh-port=2222"),
            *("--ssh-private-key=PRIVATE", "--ssh-public-key=PUBLIC"),
        ]
    )
    (secret,) = plugins.objects(spec)
    data = secret.body["stringData"]
    assert not secret.keys
    assert (data["id_rsa"], data["id_rsa.pub"]) == ("PRIVATE", "PUBLIC")
    assert data["authorized_keys"] == "PUBLIC"
    assert "Port 2222" in data["config"]
    told = pod(spec, "worker", 0)["spec"]
    assert told["volumes"][0]["secret"]["defaultMode"] == 0o644
    assert told["containers"][0]["volumeMounts"][0]["mountPath"] == "/home/me/.ssh"


# --- frameworks


def test_mpi_brings_names_and_keys_and_a_hostfile() -> None:
    tasks = task("mpimaster", 1), task("mpiworker", 2, gpus=4)
    spec = job(*tasks, mpi=["--master=mpimaster", "--worker=mpiworker", "--port=2200"])
    assert plugins.enabled(spec) == ("svc", "ssh", "mpi")
    files = made(spec)["ConfigMap", "train-svc"]["data"]
    assert files["hostfile"].splitlines() == [
        "train-mpiworker-0.train slots=4",
        "train-mpiworker-1.train slots=4",
    ]
    told = pod(spec, "mpimaster", 0)
    assert env(told)["MPI_HOST"] == "train-mpiworker-0.train,train-mpiworker-1.train"
    assert {"name": "mpijob-port", "containerPort": 2200} in told["spec"]["containers"][0]["ports"]
    assert "MPI_HOST" not in env(pod(spec, "mpiworker", 0))


def test_pytorch_ranks_masters_first() -> None:
    spec = job(task("worker", 2), task("master", 1), task("tensorboard", 1), pytorch=[])
    assert plugins.check(spec) == ""
    ranks = [
        env(pod(spec, name, index)) for name, index in (("master", 0), ("worker", 0), ("worker", 1))
    ]
    assert [one["RANK"] for one in ranks] == ["0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in ranks} == {"3"}
    assert {one["MASTER_ADDR"] for one in ranks} == {"train-master-0.train"}
    assert {one["MASTER_PORT"] for one in ranks} == {"23456"}
    assert "RANK" not in env(pod(spec, "tensorboard", 0))


def test_pytorch_gives_torchrun_its_options() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    eight = {"spec": {"containers": [{"name": "m", **limits}]}}
    spec = job(replace(task("worker", 4), template=eight), pytorch=["--port=99"])
    found = env(pod(spec, "worker", 3))
    assert {name: value for name, value in found.items() if name.startswith("PET_")} == {
        "PET_NNODES": "4",
        "PET_NODE_RANK": "3",
        "PET_NPROC_PER_NODE": "8",
        "PET_MASTER_ADDR": "train-worker-0.train",
        "PET_MASTER_PORT": "99",
    }
    assert env(pod(job(pytorch=[]), "worker", 0))["PET_NPROC_PER_NODE"] == "1"
    own = {"containers": [{"name": "m", "env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]}
    mine = replace(task("worker", 1), template={"spec": own})
    assert env(pod(job(mine, pytorch=[]), "worker", 0))["PET_NPROC_PER_NODE"] == "2"


def test_pytorch_without_a_master_has_the_first_worker_lead() -> None:
    told = env(pod(job(pytorch=[]), "worker", 1))
    assert (told["MASTER_ADDR"], told["RANK"]) == ("train-worker-0.train", "1")


def test_pytorch_workers_may_wait_for_the_master() -> None:
    arguments = ["--wait-master-enabled", "--wait-master-timeout=9", "--wait-master-image=nc:1"]
    tasks = task("master", 1), task("worker", 1)
    spec = job(*tasks, pytorch=arguments)
    (waiting,) = pod(spec, "worker", 0)["spec"]["initContainers"]
    assert (waiting["name"], waiting["image"]) == ("wait-for-master", "nc:1")
    assert "nc -z -w 1 train-master-0.train 23456" in waiting["command"][2]
    assert "initContainers" not in pod(spec, "master", 0)["spec"]


def test_hcclrank_is_an_annotation() -> None:
    def rank(spec: JobSpec, name: str, index: int) -> str:
        return str(pod(spec, name, index)["metadata"]["annotations"]["hccl/rankIndex"])

    tasks = task("master", 2), task("worker", 2)
    for spec in (job(*tasks, hcclrank=[]), job(*tasks, hcclrank=[], pytorch=[])):
        ranks = [rank(spec, name, index) for name in ("master", "worker") for index in range(2)]
        assert ranks == ["0", "1", "2", "3"]


def test_tensorflow_tells_the_cluster() -> None:
    spec = job(task("ps", 1), task("trainer", 2), tensorflow=["--worker=trainer", "--port=3333"])
    told = json.loads(env(pod(spec, "trainer", 1))["TF_CONFIG"])
    assert told == {
        "cluster": {
            "ps": ["train-ps-0.train:3333"],
            "worker": ["train-trainer-0.train:3333", "train-trainer-1.train:3333"],
        },
        "task": {"type": "worker", "index": 1},
    }
    roles = ("ps", "worker", "chief", "evaluator")
    told = json.loads(
        env(pod(job(*(task(each, 1) for each in roles), tensorflow=[]), "ps", 0))["TF_CONFIG"]
    )
    assert set(told["cluster"]) == {*roles}
    alone = job(task("worker", 1), tensorflow=[])
    assert plugins.check(alone) == ""
    assert "TF_CONFIG" not in env(pod(alone, "worker", 0))


def test_ray_starts_a_cluster() -> None:
    tasks = (
        replace(task("head", 1), template=template("side", "head")),
        replace(task("worker", 2), template=template("worker")),
    )
    spec = job(*tasks, ray=["--dashboardPort=9999"])
    head = pod(spec, "head", 0)["spec"]["containers"]
    assert "command" not in head[0]
    assert head[1]["command"][2].startswith("ray start --head --block --port=6379")
    assert "--dashboard-port=9999" in head[1]["command"][2]
    worker = pod(spec, "worker", 1)["spec"]["containers"][0]
    assert worker["command"][2] == "ray start --block --address=train-head-0.train:6379"
    service = made(spec)["Service", "train-head-svc"]["spec"]
    assert [port["port"] for port in service["ports"]] == [6379, 9999, 10001]
    assert service["selector"]["volcano.sh/task-spec"] == "head"


# --- topology


def test_topology_ranks_those_with_gpus_and_tells_places() -> None:
    spec = job(task("launcher", 1), task("worker", 4, gpus=8), topology=["--interface=eth0"])
    told = env(pod(spec, "worker", 3))
    assert (told["LOCKSTEP_RANK"], told["LOCKSTEP_WORLD_SIZE"]) == ("3", "4")
    assert told["LOCKSTEP_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    path = "metadata.annotations['lockstep.dev/rack']"
    assert told["LOCKSTEP_RACK"] == {"fieldRef": {"fieldPath": path}}
    assert told["NCCL_SOCKET_IFNAME"] == told["GLOO_SOCKET_IFNAME"] == "eth0"
    launcher = env(pod(spec, "launcher", 0))
    assert "LOCKSTEP_RANK" not in launcher
    assert "LOCKSTEP_RACK" in launcher
    ordered = job(task("a", 2), task("b", 2), topology=["--tasks=b,a"])
    assert [env(pod(ordered, n, 1))["LOCKSTEP_RANK"] for n in ("b", "a")] == ["1", "3"]
    resized = replace(spec, elastic=ElasticTask("worker", 2, 4))
    told = env(pod(resized, "worker", 3))
    assert "LOCKSTEP_RACK" in told
    assert not told.keys() & {"LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE"}, "4 may be 2 when it starts"


def test_topology_asks_for_the_network_cards_beside_the_gpus() -> None:
    one = replace(
        task("w", 1, gpus=2),
        template={
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}},
                    {"name": "side"},
                ]
            }
        },
    )
    main, side = pod(job(one, topology=["--rdma=2"]), "w", 0)["spec"]["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 2, "lockstep.dev/rdma": "2"}
    assert "resources" not in side


# --- what is refused


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (job(magic=[]), "spec.plugins.magic: unknown plugin; known: elastic, env, hcclrank,"),
        (job(task("a", 1), hcclrank=[]), "spec.plugins.hcclrank: the job has neither a task"),
        (job(svc=["--inject-hosts-env=maybe"]), '"maybe" is neither true nor false'),
        (job(ssh=["--ssh-port"]), 'spec.plugins.ssh: "--ssh-port" needs a value'),
        (job(ssh=["--ssh-port=x"]), '"x" is not a whole number'),
        (job(ssh=["--ssh-port=70000"]), "--ssh-port: 70000 is not a port"),
        (job(ssh=["--ssh-private-key=x"]), "must be set together"),
        (job(mpi=[]), 'spec.plugins.mpi: the job has no task "master"; set --master=TASK'),
        (job(task("a", 1), pytorch=[]), "spec.plugins.pytorch: the job has neither a task"),
        (job(task("a", 2), tensorflow=[]), "spec.plugins.tensorflow: the job has no task"),
        (job(task("head", 2), ray=[]), 'task "head" has 2 pods; it must have one'),
        (job(task("head", 1), ray=[]), 'task "head" has no container "head"'),
        (job(topology=["--tasks=x"]), 'spec.plugins.topology: --tasks: the job has no task "x"'),
        (replace(job(svc=[]), name="3d"), 'its Service cannot be called "3d"'),
        (replace(job(svc=[]), name="a.b"), 'its Service cannot be called "a.b"'),
        (replace(job(svc=[]), name="a" * 60), "too long for a host name"),
        (job(task("a", 9000), svc=[]), "the names of 9000 hosts are too long for a variable"),
        (job(task("a", 40000), svc=[]), "the names of 40000 hosts are too long for one ConfigMap"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_field(spec: JobSpec, told: str) -> None:
    assert told in plugins.check(spec)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (job(env=["--x"]), 'spec.plugins.env: unknown argument "--x"; known: none'),
        (job(svc=["hello"]), 'spec.plugins.svc: unknown argument "hello"; known: --publ'),
        (
            job(ssh=["--port=22"]),
            'spec.plugins.ssh: unknown argument "--port=22"; did you mean --ssh-port?',
        ),
        (
            job(ssh=["--ssh-prot=22"]),
            'spec.plugins.ssh: unknown argument "--ssh-prot=22"; did you mean --ssh-port?',
        ),
        (
            job(elastic=["--spared=1"]),
            'spec.plugins.elastic: unknown argument "--spared=1"; did you mean --spares?',
        ),
        (
            job(elastic=["--within=r"]),
            'spec.plugins.elastic: unknown argument "--within=r"; known: ',
        ),
        (
            job(elastic=["--task=a", "--task=b"]),
            'spec.plugins.elastic: "--task" is given as a and as b; only one value counts',
        ),
        (
            job(task("a", 2), task("b", 2), elastic=["--task=a,b"]),
            'spec.plugins.elastic: --task: "a,b" are several; a Job has one elastic task',
        ),
    ],
)
def test_arguments_that_a_plugin_does_not_know_are_refused(spec: JobSpec, told: str) -> None:
    assert plugins.check(spec).startswith(told)


@pytest.mark.parametrize("name", list(plugins.PLUGINS))
def test_every_plugin_refuses_what_it_does_not_know(name: str) -> None:
    assert "unknown argument" in plugins.check(job(**{name: ["--zzz=1"]}))


def test_an_argument_of_volcano_is_ignored_with_a_warning() -> None:
    spec = job(ssh=["--no-root", "--ssh-port=2222", "--ssh-port=2222"])
    assert not plugins.check(spec)
    config = next(made.body["stringData"]["config"] for made in plugins.objects(spec))
    assert "2222" in config
    (why,) = plugins.warnings(spec)
    assert why.startswith('spec.plugins.ssh: argument "--no-root" is ignored; known: --ssh-key')


def test_a_mount_of_the_jobs_own_where_files_belong_is_refused() -> None:
    mounts = [{"name": "v", "mountPath": "/root/.ssh/"}]
    one = replace(
        task("a", 1), template={"spec": {"containers": [{"name": "m", "volumeMounts": mounts}]}}
    )
    assert "task a has another mount at /root/.ssh" in plugins.check(job(one, ssh=[]))
    assert plugins.check(job(one, ssh=["--ssh-key-file-path=/keys"])) == ""


def test_the_order_in_which_a_job_names_them_does_not_matter() -> None:
    names = [name for name in PLUGINS if name not in {"mpi", "ray"}]
    there = pod(job(**{name: [] for name in names}), "worker", 0)
    assert there == pod(job(**{name: [] for name in reversed(names)}), "worker", 0)


def test_pods_inherit_what_decides_about_their_eviction() -> None:
    """As labels and as annotations; the other settings as annotations only, and nothing else."""
    own = (
        ("volcano.sh/preemptable", "false"),
        ("volcano.sh/cooldown-time", "60s"),
        ("volcano.sh/revocable-zone", "night"),
        ("team", "a"),
    )
    spec = replace(job(), labels=own, annotations=own)
    metadata = pod_manifest.manifest(spec, JobStatus(), spec.tasks[0], 0)["metadata"]
    names = [name for name, _ in own]
    assert [name for name in names if name in metadata["labels"]] == names[:2]
    assert [name for name in names if name in metadata["annotations"]] == names[:3]
    assert metadata["labels"]["volcano.sh/preemptable"] == "false"
    plain = pod_manifest.manifest(job(), JobStatus(), spec.tasks[0], 0)["metadata"]
    assert not set(names) & {*plain["labels"], *plain["annotations"]}


# --- elastic


def with_files(replicas: int = 4, **spec: Any) -> JobSpec:
    worker = replace(task("worker", replicas, **spec), minimum=2)
    return job(task("ps", 1), worker, elastic=["--task=worker", "--files"])


def test_members_have_a_volume_of_their_annotations() -> None:
    spec = with_files(initContainers=[{"name": "first"}])
    assert plugins.check(spec) == ""
    told = pod(spec, "worker", 1)
    [volume] = told["spec"]["volumes"]
    files = {item["path"]: item["fieldRef"]["fieldPath"] for item in volume["downwardAPI"]["items"]}
    assert files == {
        "generation": "metadata.annotations['lockstep.dev/generation']",
        "size": "metadata.annotations['lockstep.dev/size']",
        "members": "metadata.annotations['lockstep.dev/members']",
        "leaving": "metadata.annotations['lockstep.dev/leaving']",
        "leave-by": "metadata.annotations['lockstep.dev/leave-by']",
    }
    for container in (*told["spec"]["containers"], *told["spec"]["initContainers"]):
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/etc/lockstep"}]
    assert env(told)["LOCKSTEP_FILES"] == "/etc/lockstep"
    assert "volumes" not in pod(spec, "ps", 0)["spec"]


def test_the_coordinators_files_are_below_those_of_the_member() -> None:
    spec = job(
        task("c", 1),
        replace(task("worker", 4), minimum=2),
        elastic=["--files", "--coordinator=c"],
        svc=[],
    )
    spec = replace(spec, elastic=ElasticTask("worker", 2, 4, coordinator="c", files=True))
    [container] = pod(spec, "worker", 0)["spec"]["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {"/etc/lockstep", "/etc/lockstep/coordinator"} <= set(paths)
    assert env({"spec": {"containers": [container]}})["LOCKSTEP_FILES"] == "/etc/lockstep"


def test_files_need_their_path_and_a_bounded_task() -> None:
    mounts = [{"name": "v", "mountPath": "/etc/lockstep/"}]
    own = template()
    own["spec"]["containers"][0]["volumeMounts"] = mounts
    spec = job(replace(task("worker", 4), minimum=2, template=own), elastic=["--files"])
    assert "another mount at /etc/lockstep" in plugins.check(spec)
    assert plugins.check(replace(spec, plugins=(("elastic", ()),))) == ""
    assert plugins.check(with_files(1024)) == ""
    assert plugins.check(with_files(1025)) == (
        "spec.plugins.elastic: --files: task worker may have 1025 pods; at most 1024 are accepted"
    )
