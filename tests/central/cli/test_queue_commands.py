"""`lockstep queue` and `lockstep group`."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from central.kube.transport.http_client import Client
from central.server.grpc.visibility import Viewer
from tests.central.cli.run_cli import (
    COMMANDS,
    GROUPS,
    PODS,
    AskedScheduler,
    Lockstep,
    group,
    member,
    mpi,
)
from tests.central.custom_resources import DEFINITIONS
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def test_a_queue_is_made_changed_closed_and_deleted(lockstep: Lockstep, client: Client) -> None:
    lockstep("queue", "create", "top")
    assert client.get(f"{QUEUES}/top")["spec"]["reclaimable"]
    output = lockstep(
        *("queue", "create", "-n", "ml", "-w", "3", "--parent", "top"),
        *("--capability", "nvidia.com/gpu=16", "--guarantee", "nvidia.com/gpu=2"),
        *("--deserved", "nvidia.com/gpu=8", "--priority", "0", "--keep"),
    )
    assert output == "queue ml created\n"
    spec = client.get(f"{QUEUES}/ml")["spec"]
    assert spec == {
        "weight": 3,
        "parent": "top",
        "capability": {"nvidia.com/gpu": "16"},
        "guarantee": {"resource": {"nvidia.com/gpu": "2"}},
        "deserved": {"nvidia.com/gpu": "8"},
        "priority": 0,
        "reclaimable": False,
        "state": "Open",
    }
    lockstep("queue", "operate", "ml", "-a", "update", "-w", "5")
    assert client.get(f"{QUEUES}/ml")["spec"]["weight"] == 5
    lockstep("queue", "operate", "ml", "-a", "close")
    assert client.get(f"{QUEUES}/ml")["spec"]["state"] == "Closed"
    lockstep("queue", "operate", "ml", "-a", "open")
    assert client.get(f"{QUEUES}/ml")["spec"]["state"] == "Open"
    view = lockstep("queue", "view", "top")
    assert "Children:     ml" in view
    assert "--action update needs one of --weight" in lockstep(
        "queue", "operate", "ml", "-a", "update", code=2
    )
    assert "--action close takes no other flags" in lockstep(
        "queue", "operate", "ml", "-a", "close", "-w", "5", code=2
    )
    assert client.get(f"{QUEUES}/ml")["spec"]["state"] == "Open"
    lockstep("queue", "delete", "ml", "top")
    assert client.get(QUEUES)["items"] == []


def test_the_default_queue_gets_an_object_when_it_is_changed(
    lockstep: Lockstep, client: Client
) -> None:
    lockstep("queue", "operate", "default", "-a", "close")
    assert client.get(f"{QUEUES}/default")["spec"]["state"] == "Closed"
    lockstep("queue", "operate", "default", "-a", "update", "-w", "2")
    assert client.get(f"{QUEUES}/default")["spec"]["weight"] == 2
    assert "queue other not found" in lockstep("queue", "operate", "other", "-a", "open", code=3)


def test_queues_with_their_gangs(lockstep: Lockstep, put: Callable[[str, Json], Json]) -> None:
    status = {"pending": 1, "running": 1}
    put(QUEUES, {"metadata": {"name": "default"}, "spec": {}, "status": status})
    title, row = lockstep("queue", "list").splitlines()
    assert (
        " ".join(title.split())
        == "NAME WEIGHT STATE PARENT INQUEUE PENDING RUNNING UNKNOWN COMPLETED"
    )
    assert " ".join(row.split()) == "default 1 Open - 0 1 1 0 0"


def test_without_spec_state_a_command_is_created(
    lockstep: Lockstep, client: Client, put: Callable[[str, Json], Json]
) -> None:
    """Volcano's own CRD has no spec.state."""
    name, weight = "queues.scheduling.volcano.sh", {"weight": {"type": "integer"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": weight}}}
    version = {"name": "v1beta1", "served": True, "storage": True}
    spec = {
        "group": "scheduling.volcano.sh",
        "scope": "Cluster",
        "names": {"plural": "queues", "kind": "Queue"},
        "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
    }
    client.request("DELETE", f"{DEFINITIONS}/{name}")
    put(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
    lockstep("queue", "create", "q")
    lockstep("queue", "operate", "q", "-a", "close")
    [command] = client.get(COMMANDS)["items"]
    assert (command["action"], command["target"]["kind"]) == ("CloseQueue", "Queue")


def test_the_default_queue_without_an_object(lockstep: Lockstep) -> None:
    [_, row] = lockstep("queue", "list").splitlines()
    assert " ".join(row.split()) == "default 1 Open - - - - - -"
    view = lockstep("queue", "view", "default")
    assert "State:        Open, without an object" in view


def test_groups(lockstep: Lockstep, put: Callable[[str, Json], Json], client: Client) -> None:
    put(GROUPS, group("lm-mpi-job", "needs 2 more pods to start"))
    put(PODS, member("lm-mpi-job", "mpimaster", 0))
    title, row = lockstep("group", "list", "-o", "wide").splitlines()
    assert " ".join(title.split()) == "NAME PHASE MIN RUNNING SUCCEEDED FAILED QUEUE AGE WHY"
    assert row.endswith("needs 2 more pods to start")
    view = lockstep("group", "view", "lm-mpi-job")
    assert "Minimum:      3 pods, 1 exist" in view
    assert "By task:      mpimaster 1, mpiworker 2" in view
    assert "lm-mpi-job-mpimaster-0  mpimaster" in view
    lockstep("group", "delete", "lm-mpi-job")
    assert client.get(GROUPS)["items"] == []


def test_an_invalid_queue_says_why(lockstep: Lockstep, put: Callable[[str, Json], Json]) -> None:
    put(QUEUES, {"metadata": {"name": "z"}, "spec": {"parent": "gone"}})
    put(QUEUES, {"metadata": {"name": "below"}, "spec": {"parent": "z"}})
    put(QUEUES, {"metadata": {"name": "good"}})
    why = "Why:          queue z is invalid: spec.parent: queue gone does not exist\n"
    assert why in lockstep("queue", "view", "z")
    assert "Why:          queue below: its parent queue z is invalid" in lockstep(
        "queue", "view", "below"
    )
    assert "Why:" not in lockstep("queue", "view", "good")
    assert "Why:" not in lockstep("queue", "view", "default")
    names = [line.split()[0] for line in lockstep("queue", "list").splitlines()[1:]]
    assert names == ["below", "default", "good", "z"]


class WaitingGangs(CannedAnswers):
    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        if path == "/api/queues":
            return {"rows": [], "next": None}
        assert (path, query["queue"], query["sort"]) == ("/api/jobs", "default", "place")
        row = {"place": 1, "namespace": "ml", "name": "job/sweep", "gpus": 8.0, "waited": 61.0}
        return {"rows": [{**row, "why": "no room"}], "size": 3, "next": 1}


def test_a_queue_lists_what_waits_in_it_in_order(
    lockstep: Lockstep, asked_scheduler: AskedScheduler
) -> None:
    asked_scheduler(WaitingGangs())
    shown = lockstep("queue", "view", "default")
    assert re.search(r"\n +1 +ml/job/sweep +8 +61s +no room\n", shown)
    assert shown.endswith("\n2 more wait\n")


def test_a_group_that_is_a_job_says_so(
    lockstep: Lockstep, put: Callable[[str, Json], Json]
) -> None:
    put("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs", mpi("sweep"))
    shown = lockstep("group", "view", "sweep", code=3)
    assert "it is a job: lockstep job view sweep" in shown


def test_explain_takes_the_namespace_of_the_context(
    lockstep: Lockstep, asked_scheduler: AskedScheduler
) -> None:
    asked_scheduler(CannedAnswers())
    assert "default/g: " in lockstep("explain", "g")
    config = Path(os.environ["KUBECONFIG"])
    known = yaml.safe_load(config.read_text())
    known["contexts"][0]["context"]["namespace"] = "ml"
    config.write_text(yaml.safe_dump(known))
    assert "no gang or pod named ml/g" in lockstep("explain", "g", code=3)
    assert "default/g: " in lockstep("explain", "-n", "default", "g")
