"""Objects that tests of the commands put into the API server."""

from typing import Any, Protocol

from central.server.grpc.query_service import Queries
from tests.central.scheduler_process import SchedulerServer

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"

Json = dict[str, Any]


class Lockstep(Protocol):
    def __call__(self, *argv: str, code: int = 0) -> str: ...


class AskedScheduler(Protocol):
    def __call__(self, answers: Queries, term: int = 1) -> SchedulerServer:
        """Starts a scheduler that the command asks from now on. It stops after the test."""
        ...


def mpi(name: str = "lm-mpi-job", phase: str = "Pending", **status: Any) -> Json:
    """An MPI job with one master and two workers."""
    return {
        "metadata": {"name": name, "labels": {"volcano.sh/job-type": "MPI"}},
        "spec": {
            "minAvailable": 3,
            "schedulerName": "volcano",
            "plugins": {"ssh": [], "svc": []},
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [
                {
                    "name": "mpimaster",
                    "replicas": 1,
                    "template": TEMPLATE,
                    "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
                },
                {"name": "mpiworker", "replicas": 2, "template": TEMPLATE},
            ],
        },
        "status": {"state": {"phase": phase}, "minAvailable": 3, **status},
    }


def member(job: str, task: str, index: int, **status: Any) -> Json:
    return {
        "metadata": {
            "name": f"{job}-{task}-{index}",
            "labels": {"volcano.sh/job-name": job},
            "annotations": {
                "volcano.sh/task-spec": task,
                "volcano.sh/task-index": str(index),
                "scheduling.k8s.io/group-name": job,
            },
        },
        "spec": {"containers": [{"name": "main", "image": "i"}]},
        "status": {"phase": "Pending", **status},
    }


def group(name: str, why: str) -> Json:
    condition = {"type": "Unschedulable", "status": "True", "message": why}
    return {
        "metadata": {"name": name},
        "spec": {"minMember": 3, "minTaskMember": {"mpimaster": 1, "mpiworker": 2}},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
