"""`lockstep what-if` with the objects of an API server in memory. Where no scheduler answers, nodes are islands of
equal GPUs."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from central.kube.transport.http_client import Client
from tests.central.cli.run_cli import PODS, Lockstep

NODES = "/api/v1/nodes"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
Json = dict[str, Any]
Put = Callable[[str, Json], Json]
NOBODY = {"server": "localhost:1", "ca": "", "server_name": "lockstep-central"}  # no scheduler


def node(name: str, rack: str) -> Json:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True"}]
    labels = {"lockstep.dev/rack": rack}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": ready},
    }


def pod(name: str, gang: str, gpus: int = 8, on: str = "", runs_for: str = "") -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    made: Json = {
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": gang}},
        "spec": {"schedulerName": "lockstep", "containers": [container]},
    }
    if runs_for:
        made["metadata"]["annotations"]["lockstep.dev/runs-for"] = runs_for
    if on:
        made["spec"]["nodeName"] = on
        started = datetime.now(UTC) - timedelta(seconds=60)
        made["status"] = {"phase": "Running", "startTime": f"{started:%Y-%m-%dT%H:%M:%SZ}"}
    return made


def put_old_and_new(put: Put) -> None:
    """One node, on which `old` runs and for which `new` waits."""
    put(NODES, node("n1", "r1"))
    for gang in ("old", "new"):
        put(GROUPS, {"metadata": {"name": gang}, "spec": {"minMember": 1}})
    put(PODS, pod("old-0", "old", on="n1"))
    put(PODS, pod("new-0", "new"))


@pytest.fixture
def cluster(put: Put) -> None:
    """Two nodes: `old` runs on the first for 100 s in all, `new` waits for two nodes."""
    for name, rack in (("n1", "r1"), ("n2", "r2")):
        put(NODES, node(name, rack))
    for gang, minimum in (("old", 1), ("new", 2)):
        put(GROUPS, {"metadata": {"name": gang}, "spec": {"minMember": minimum}})
    put(PODS, pod("old-0", "old", on="n1", runs_for="100s"))
    for at in range(2):
        put(PODS, pod(f"new-{at}", "new"))


@pytest.fixture
def asked(lockstep: Lockstep, cluster: None) -> Callable[..., Json]:
    def ask(*changes: str) -> Json:
        typed = ("what-if", "--server=127.0.0.1:1", *changes, "-o", "json")
        found: Json = json.loads(lockstep(*typed))
        return found

    return ask


def one(found: Json, name: str) -> Json:
    gang: Json
    [gang] = [each for each in found["gangs"] if each["name"] == name]
    return gang


def test_a_gang_that_ends_lets_the_next_start(asked: Callable[..., Json]) -> None:
    found = one(asked("--without", "old"), "new")
    before, after = found["before"], found["after"]
    assert before["state"] == "starts"
    assert 30 < before["at_s"] <= 41  # of 100 s it has run for 60 s
    assert (after["state"], after["at_s"], sorted(after["nodes"])) == ("starts", 0.0, ["n1", "n2"])


def test_a_cordoned_rack_keeps_a_gang_pending(asked: Callable[..., Json]) -> None:
    found = one(asked("--cordon", "rack=r2"), "new")
    assert found["after"]["state"] == "waits"
    assert "1 node: cordoned" in found["after"]["reason"]


def test_a_drained_node_moves_its_pods(asked: Callable[..., Json]) -> None:
    found = asked("--drain", "n1")
    assert one(found, "old")["after"]["nodes"] == ["n2"]
    assert one(found, "new")["after"]["state"] == "waits"
    assert {"name": "pods drained", "before": 0, "after": 1} in found["totals"]


def test_a_limit_of_a_queue(asked: Callable[..., Json], put: Put) -> None:
    put(QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
    found = one(asked("--queue", "default:capability=8"), "new")
    assert "capability of 8 GPUs" in found["after"]["reason"]


def test_a_new_gang_and_what_it_delays(asked: Callable[..., Json], tmp_path: Path) -> None:
    more = pod("more-0", "more")
    more |= {"apiVersion": "v1", "kind": "Pod"}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "more"},
        "spec": {"minMember": 1},
    }
    file = tmp_path / "more.yaml"
    file.write_text(yaml.safe_dump_all([group, more]))
    found = asked("--submit", str(file), "--without", "new")
    assert one(found, "more")["after"] | {"gpus": 8.0} == one(found, "more")["after"]
    assert one(found, "more")["before"]["state"] == "unchanged"
    assert one(found, "new")["after"]["state"] == "unchanged"


def test_as_text_it_says_now_and_then(lockstep: Lockstep, cluster: None) -> None:
    shown = lockstep("what-if", "--server=127.0.0.1:1", "--without", "old", "--until", "1h")
    assert "default/new\n  now:  starts after 4" in shown or "  now:  starts after 3" in shown
    assert "  then: starts at once on n" in shown
    nothing = lockstep("what-if", "--server=127.0.0.1:1", "--queue", "other:weight=2")
    assert "No gang starts, waits or is evicted differently within 24 h" in nothing


def test_the_cluster_is_not_changed(asked: Callable[..., Json], client: Client) -> None:
    before = client.get(NODES)["items"], client.get(PODS)["items"]
    asked("--drain", "n1", "--without", "new", "--queue", "q:weight=3")
    assert (client.get(NODES)["items"], client.get(PODS)["items"]) == before
    assert client.get(QUEUES)["items"] == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ((), "name a change"),
        (("--cordon", "n11"), "no node named n11; did you mean n1?"),
        (("--cordon", "shelf=1"), '"shelf" is not a level of the topology: zone, block, rack'),
        (("--cordon", "rack=r9"), "no node is in rack=r9"),
        (("--queue", "a:size=3"), "with FIELD one of capability"),
        (("--queue", "a:weight=1e9"), "QUEUE:FIELD=NUMBER"),
        (("--queue", "a:weight=99999999999"), "too large"),
        (("--without", "nw"), "no job or gang named default/nw; did you mean new?"),
        (("--submit", "/nowhere.yaml"), "/nowhere.yaml: No such file"),
        (("--submit", "/dev/null"), "no objects: the files are empty"),
        (("--without", "old", "--until", "soon"), "--until"),
    ],
)
def test_what_cannot_be_asked(
    lockstep: Lockstep, cluster: None, typed: tuple[str, ...], said: str
) -> None:
    assert said in lockstep("what-if", "--server=127.0.0.1:1", *typed, code=2)
