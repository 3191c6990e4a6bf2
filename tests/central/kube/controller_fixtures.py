"""Objects of the controllers that people run, and their pods with the labels, annotations and owners that these
controllers write: JobSet 0.10, LeaderWorkerSet 0.7, KubeRay 1.5, training operator 1.9, MPI operator 0.6."""

from dataclasses import dataclass

from central.model.json_types import Json
from protos.names import GPU

SPACE = "ml"


@dataclass(frozen=True)
class Played:
    object: Json
    pods: list[Json]
    gang: str  # of its pods; of LeaderWorkerSets without the replica
    start: int  # pods that start together


def _object(
    api_version: str, kind: str, name: str, spec: Json, annotations: dict[str, str] | None = None
) -> Json:
    meta = {
        "namespace": SPACE,
        "name": name,
        "uid": f"uid-{name}",
        "annotations": annotations or {},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def pod(
    name: str,
    owner: tuple[str, str],
    labels: dict[str, str],
    annotations: dict[str, str] | None = None,
    gpus: int = 8,
) -> Json:
    kind, of = owner
    by = {"kind": kind, "name": of, "uid": f"uid-{kind}-{of}", "controller": True}
    limits = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": SPACE,
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": annotations or {},
            "ownerReferences": [{"apiVersion": "v1", "blockOwnerDeletion": True, **by}],
        },
        "spec": {
            "schedulerName": "lockstep",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
        },
    }


# --- JobSet ------------------------------------------------------------------


def jobset(spec: Json | None = None, annotations: dict[str, str] | None = None) -> Json:
    """A driver and two Jobs of two workers."""

    def job(role: str, replicas: int, parallelism: int) -> Json:
        inside = {"parallelism": parallelism, "completions": parallelism}
        return {"name": role, "replicas": replicas, "template": {"spec": inside}}

    jobs = [job("driver", 1, 1), job("workers", 2, 2)]
    whole = {"replicatedJobs": jobs, **(spec or {})}
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", "train", whole, annotations)


def jobset_pod(name: str, role: str, job: int, index: int, gpus: int = 8) -> Json:
    key = "jobset.sigs.k8s.io"
    full = f"{name}-{role}-{job}"
    labels = {
        f"{key}/jobset-name": name,
        f"{key}/replicatedjob-name": role,
        f"{key}/job-index": str(job),
        f"{key}/restart-attempt": "0",
        "batch.kubernetes.io/job-name": full,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod(f"{full}-{index}-x7k2p", ("Job", full), labels, gpus=gpus)


def jobset_pods(name: str = "train") -> list[Json]:
    workers = [jobset_pod(name, "workers", job, i) for job in range(2) for i in range(2)]
    return [jobset_pod(name, "driver", 0, 0, gpus=0), *workers]


# --- LeaderWorkerSet ---------------------------------------------------------


def leaderworkerset(
    size: int = 2, policy: str = "LeaderCreated", annotations: dict[str, str] | None = None
) -> Json:
    spec = {"replicas": 2, "startupPolicy": policy, "leaderWorkerTemplate": {"size": size}}
    kind = "LeaderWorkerSet"
    return _object("leaderworkerset.x-k8s.io/v1", kind, "serve", spec, annotations)


def leaderworkerset_pods(replica: int, size: int = 2) -> list[Json]:
    key = "leaderworkerset.sigs.k8s.io"
    leader = f"serve-{replica}"
    found = []
    for index in range(size):
        labels = {
            f"{key}/name": "serve",
            f"{key}/group-index": str(replica),
            f"{key}/group-key": f"hash-{replica}",
            f"{key}/worker-index": str(index),
            "apps.kubernetes.io/pod-index": str(index or replica),
        }
        marks = {f"{key}/size": str(size)} | ({f"{key}/leader-name": leader} if index else {})
        owner = ("StatefulSet", leader if index else "serve")
        found.append(pod(f"{leader}-{index}" if index else leader, owner, labels, marks))
    return found


# --- KubeRay -----------------------------------------------------------------


def raycluster(**spec: object) -> Json:
    """A head, 8 CPU workers and one GPU worker."""
    groups = [
        {"groupName": "cpu", "replicas": 8, "minReplicas": 2, "maxReplicas": 16},
        {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 1},
    ]
    whole = {"headGroupSpec": {}, "workerGroupSpecs": groups, **spec}
    return _object("ray.io/v1", "RayCluster", "tune", whole)


def ray_pod(group: str, index: int, gpus: int = 0) -> Json:
    head = group == "headgroup"
    labels = {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": "tune",
        "ray.io/group": group,
        "ray.io/identifier": f"tune-{'head' if head else 'worker'}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head" if head else "worker",
    }
    return pod(f"tune-{group}-{index}", ("RayCluster", "tune"), labels, gpus=gpus)


def ray_pods() -> list[Json]:
    return [ray_pod("headgroup", 0), *(ray_pod("cpu", i) for i in range(8)), ray_pod("gpu", 0, 8)]


# --- training operator and MPI operator --------------------------------------


def pytorchjob(**spec: object) -> Json:
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    whole = {"pytorchReplicaSpecs": roles, **spec}
    return _object("kubeflow.org/v1", "PyTorchJob", "bert", whole)


def pytorch_pods(workers: int = 2) -> list[Json]:
    def one(role: str, index: int) -> Json:
        labels = {
            "training.kubeflow.org/job-name": "bert",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-index": str(index),
            "training.kubeflow.org/replica-type": role,
        }
        if role == "master":
            labels["training.kubeflow.org/job-role"] = "master"
        return pod(f"bert-{role}-{index}", ("PyTorchJob", "bert"), labels)

    return [one("master", 0), *(one("worker", index) for index in range(workers))]


def mpijob(policy: str = "AtStartup") -> Json:
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    spec = {"mpiReplicaSpecs": roles, "launcherCreationPolicy": policy, "runPolicy": {}}
    return _object("kubeflow.org/v2beta1", "MPIJob", "pi", spec)


def mpi_pods() -> list[Json]:
    def labels(role: str, index: int) -> dict[str, str]:
        return {
            "training.kubeflow.org/job-name": "pi",
            "training.kubeflow.org/job-role": role,
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/replica-index": str(index),
        }

    workers = [pod(f"pi-worker-{i}", ("MPIJob", "pi"), labels("worker", i)) for i in range(2)]
    by_job = {"batch.kubernetes.io/job-name": "pi-launcher", **labels("launcher", 0)}
    launcher = pod("pi-launcher-tntsp", ("Job", "pi-launcher"), by_job, gpus=0)
    return [launcher, *workers]


PLAYED: dict[str, Played] = {
    "JobSet": Played(jobset(), jobset_pods(), "jobset/train", 5),
    "LeaderWorkerSet": Played(
        leaderworkerset(), leaderworkerset_pods(0), "leaderworkerset/serve/0", 2
    ),
    "RayCluster": Played(raycluster(), ray_pods(), "raycluster/tune", 10),
    "PyTorchJob": Played(pytorchjob(), pytorch_pods(), "pytorchjob/bert", 3),
    "MPIJob": Played(mpijob(), mpi_pods(), "mpijob/pi", 3),
}
