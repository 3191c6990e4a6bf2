"""What commands show of objects and answers whose texts are escape sequences: a terminal obeys none of them."""

from collections.abc import Callable
from typing import Any

import pytest

from central.server.grpc.query_service import Explanation, NodeView
from protos.stubs import fleet_pb2 as pb
from protos.topology import RdmaLimit, RdmaUse
from tests.central.cli.run_cli import EVENTS, GROUPS, JOBS, PODS, AskedScheduler, Lockstep, mpi

ODD = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
Put = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def cluster(put: Put) -> None:
    """A Job, its group, a pod and an Event; each text that the API server does not check is odd."""
    job = mpi("j", phase=f"Pending{ODD}", conditions=[{"status": ODD, "lastTransitionTime": ODD}])
    job["status"]["state"] |= {"reason": ODD, "message": f"a\n{ODD}"}
    job["metadata"]["labels"]["volcano.sh/job-type"] = ODD
    job["metadata"]["annotations"] = {"a": ODD}
    made = put(JOBS, job)
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "controller": True,
    }
    owner["uid"] = made["metadata"]["uid"]
    condition = {"type": "Unschedulable", "status": "True", "reason": ODD, "message": f"why {ODD}"}
    put(
        GROUPS,
        {
            "metadata": {"name": f"j-{made['metadata']['uid']}", "ownerReferences": [owner]},
            "spec": {"minMember": 3, "minTaskMember": {ODD: 1}},
            "status": {"phase": f"Pending{ODD}", "conditions": [condition]},
        },
    )  # fmt: skip
    waiting = {"waiting": {"reason": ODD, "message": ODD}}
    put(
        PODS,
        {
            "metadata": {
                "name": "j-mpiworker-0",
                "labels": {"volcano.sh/job-name": "j"},
                "annotations": {"volcano.sh/task-spec": f"mpiworker{ODD}", "volcano.sh/task-index": ODD},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": f"n{ODD}", "containers": [{"name": "c"}]},
            "status": {
                "phase": f"Failed{ODD}",
                "reason": ODD,
                "message": ODD,
                "podIP": ODD,
                "containerStatuses": [{"name": "c", "state": waiting, "restartCount": 1}],
            },
        },
    )  # fmt: skip
    put(
        EVENTS,
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Job", "name": "j", "uid": made["metadata"]["uid"]},
            "type": f"Warning{ODD}",
            "reason": ODD,
            "message": f"it\nis {ODD}",
            "lastTimestamp": ODD,
        },
    )


class Answers:
    """Of a scheduler."""

    levels = (f"level{ODD}",)
    troubles = (f"trouble {ODD}",)

    def node_views(self, node: str) -> list[NodeView]:
        use = RdmaUse("ns", f"p{ODD}", f"c{ODD}", RdmaLimit(1, 1), RdmaLimit(2, 2))
        return [NodeView(f"n{ODD}", (f"d{ODD}",), trouble=ODD, cards=(use,), agent_version=ODD)]

    def explain(self, namespace: str, name: str) -> Explanation:
        return Explanation(
            namespace, name, f"Pending{ODD}", f"a\n{ODD}", queue=ODD, closest=ODD, owner=ODD, size=ODD
        )  # fmt: skip

    def queue_tenants(self, name: str) -> tuple[pb.QueueReply, list[str]]:
        return pb.QueueReply(), []


def shown(text: str) -> None:
    odd = [line for line in text.split("\n") if not line.isprintable()]
    assert not odd, odd[:3]
    assert text.strip()


@pytest.mark.parametrize(
    "command",
    [
        "job list", "job list -o wide", "job view j", "group list", "group list -o wide", "queue list",
        "queue list -o wide", "job list -o name", "explain j", "topology", "topology n0",
    ],
)  # fmt: skip
def test_texts_of_the_cluster(
    command: str,
    cluster: None,
    lockstep: Lockstep,
    asked_scheduler: AskedScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_scheduler(Answers())
    for columns in ("", "40", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        shown(lockstep(*command.split()))


def test_the_group_of_a_job(cluster: None, lockstep: Lockstep) -> None:
    (line,) = [each for each in lockstep("group", "list").split("\n") if each.startswith("j-")]
    shown(lockstep("group", "view", line.split()[0]))
