"""Pods of controllers that create them while others run, or that nobody's object counts, with what these controllers
write: Spark operator 2.1 with Spark 3.5, Argo Workflows 3.6, and a StatefulSet of an inference server. Names, labels,
annotations, owners and the PodGroup were compared with the operator's and Argo's sources of August 2026."""

from central.model.json_types import Json
from protos.names import GANG_LABEL, GANG_MIN, GROUP_NAMES
from tests.central.kube.controller_fixtures import SPACE, pod

SPARK, ARGO = "sparkoperator.k8s.io", "workflows.argoproj.io"


def spark_group(executors: int, cpu: int) -> Json:
    """What the operator writes with `batchScheduler: volcano`: the driver is the minimum, the resources are those of
    all."""
    meta = {"namespace": SPACE, "name": "spark-pi-pg", "uid": "uid-spark-pi-pg"}
    spec = {"minMember": 1, "minResources": {"cpu": str(1 + executors * cpu)}}
    return {"metadata": meta, "spec": spec}


def spark_driver() -> Json:
    return _spark("pi-driver", "driver", ("SparkApplication", "pi"), "1")


def spark_executors(count: int, cpu: int) -> list[Json]:
    """Created by the driver."""
    found = []
    for number in range(1, count + 1):
        raw = _spark(f"pi-exec-{number}", "executor", ("Pod", "pi-driver"), str(cpu))
        labels = {"spark-exec-id": str(number), "spark-exec-resourceprofile-id": "0"}
        raw["metadata"]["labels"] |= labels
        found.append(raw)
    return found


def _spark(name: str, role: str, owner: tuple[str, str], cpu: str) -> Json:
    labels = {
        "spark-app-name": "pi",
        "spark-app-selector": "spark-5f1b",
        "spark-role": role,
        "spark-version": "3.5.3",
        f"{SPARK}/app-name": "pi",
        f"{SPARK}/launched-by-spark-operator": "true",
        f"{SPARK}/submission-id": "0c5e",
    }
    raw = pod(name, owner, labels, {GROUP_NAMES[0]: "spark-pi-pg"}, gpus=0)
    raw["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return raw


def argo_steps(template: str, count: int, *, gang: bool, gpus: int = 8) -> list[Json]:
    """Parallel steps of one template. gang: its `metadata` has the label and annotation of a gang."""
    found = []
    for number in range(count):
        labels = {f"{ARGO}/completed": "false", f"{ARGO}/workflow": "sweep-x7k2p"}
        notes = {
            "kubectl.kubernetes.io/default-container": "main",
            f"{ARGO}/node-id": f"sweep-x7k2p-{number}",
            f"{ARGO}/node-name": f"sweep-x7k2p[0].{template}({number})",
        }
        if gang:
            labels[GANG_LABEL] = "sweep-x7k2p"
            notes[GANG_MIN] = str(count)
        name = f"sweep-x7k2p-{template}-{number}"
        raw = pod(name, ("Workflow", "sweep-x7k2p"), labels, notes, gpus=gpus)
        sidecar = {"name": "wait", "image": "quay.io/argoproj/argoexec:v3.6.2"}
        raw["spec"]["containers"].append(sidecar)
        found.append(raw)
    return found


def statefulset(least: int) -> Json:
    meta = {
        "namespace": SPACE,
        "name": "vllm",
        "uid": "uid-StatefulSet-vllm",
        "annotations": {"scheduling.volcano.sh/group-min-member": str(least)},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta}


def statefulset_pods(count: int) -> list[Json]:
    def one(number: int) -> Json:
        labels = {
            "app": "vllm",
            "apps.kubernetes.io/pod-index": str(number),
            "controller-revision-hash": "vllm-6b8f",
            "statefulset.kubernetes.io/pod-name": f"vllm-{number}",
        }
        return pod(f"vllm-{number}", ("StatefulSet", "vllm"), labels)

    return [one(number) for number in range(count)]
