"""PodGroups that are written for tools: what they say of a controller's gang, and whose they must not touch."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.kube.transport.http_client import Client, Reply, connect
from central.model.facts import Fact, GangGone
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server import podgroup_mirror
from central.server.podgroup_mirror import AGAIN_S, PodGroupMirror
from central.standalone.apiserver import StandaloneApi
from protos.names import GANG_MIN, GANG_OF
from tests.central import factories
from tests.central.kube import controller_fixtures as made
from tests.central.kube.api_fixtures import group, kubeconfig
from tests.fakes.eventually import eventually
from tests.fakes.still_clock import StillClock

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups"
OWNERS = {
    "ReplicaSet": "/apis/apps/v1/namespaces/ml/replicasets",
    "Job": "/apis/batch/v1/namespaces/ml/jobs",
}
READER = Decoder(("lockstep",), factories.LEVELS)


class Cluster:
    """The in-memory API, and a scheduler that is told of pods."""

    def __init__(self, client: Client) -> None:
        self.client, self.clock, self.leads = client, StillClock(), True
        self.scheduler = new_scheduler(factories.LEVELS)
        runtime: Any = self.clock
        self.mirror = PodGroupMirror(client, self, may_act=lambda: self.leads, runtime=runtime)

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 10.0) -> Any:
        return question(self.scheduler)

    def told(self, *facts: Fact) -> int:
        """Returns the number of PodGroups that the following round writes."""
        schedule_once(self.scheduler, list(facts), 0.0)
        return self.mirror.check()

    def owned(self, raws: list[Json]) -> list[Fact]:
        """The pods, by controllers that exist: else their PodGroup is garbage."""
        for raw in raws:
            [owner] = raw["metadata"]["ownerReferences"]
            path = OWNERS[owner["kind"]]
            body = json.dumps({"metadata": {"name": owner["name"]}, "spec": {}}).encode()
            self.client.request("POST", path, body)
            owner["uid"] = self.client.get(f"{path}/{owner['name']}")["metadata"]["uid"]
        return [READER.pod(raw) for raw in raws]

    def web(self, least: int) -> list[Fact]:
        """Two pods of a Deployment."""
        owner = ("ReplicaSet", "web-1")
        marks = {GANG_MIN: str(least)}
        return self.owned([made.pod(name, owner, {}, marks) for name in ("a", "b")])

    def jobset(self) -> list[Fact]:
        [rule] = [one for one in READER.rules if one.resource.kind == "JobSet"]
        return [READER.controllers_gang(rule, made.jobset()), *self.owned(made.jobset_pods())]

    def groups(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.client.get(GROUPS)["items"]}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with StandaloneApi() as api:
        client = connect(kubeconfig(tmp_path, api.url))
        space = json.dumps({"metadata": {"name": made.SPACE}}).encode()
        assert client.request("POST", "/api/v1/namespaces", space).ok
        yield Cluster(client)
        client.close()


def test_a_gang_waits_and_runs(cluster: Cluster) -> None:
    assert cluster.told(*cluster.web(2), factories.node("n0")) == 1
    [(name, found)] = cluster.groups().items()
    assert name == "replicaset-web-1"
    assert found["metadata"]["annotations"][GANG_OF] == "replicaset/web-1"
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["name"]) == ("apps/v1", "web-1")
    assert found["spec"]["minMember"] == 2
    assert found["status"]["phase"] == "Pending"
    assert "2 pods x 8 GPUs" in found["status"]["conditions"][0]["message"]
    assert cluster.told() == 0

    assert cluster.told(factories.node("n1")) == 1
    status = cluster.groups()[name]["status"]
    assert status["phase"] == "Running"
    assert "2 of 2 pods placed" in status["conditions"][0]["message"]


def test_roles_of_an_object(cluster: Cluster) -> None:
    cluster.told(*cluster.jobset())
    [found] = cluster.groups().values()
    assert found["metadata"]["name"] == "jobset-train"
    assert found["spec"]["minMember"] == 5
    assert found["spec"]["minTaskMember"] == {"driver": 1, "workers": 4}


def test_a_role_that_an_object_no_longer_has_leaves_its_podgroup(cluster: Cluster) -> None:
    cluster.told(*cluster.jobset())
    fewer = made.jobset()
    fewer["spec"]["replicatedJobs"] = fewer["spec"]["replicatedJobs"][1:]
    [rule] = [one for one in READER.rules if one.resource.kind == "JobSet"]
    cluster.told(READER.controllers_gang(rule, fewer))
    [found] = cluster.groups().values()
    assert found["spec"].get("minTaskMember", {}) == {"workers": 4}


def test_a_change_of_the_minimum_reaches_the_podgroup(cluster: Cluster) -> None:
    cluster.told(*cluster.web(2))
    cluster.told(*cluster.web(1))
    assert cluster.groups()["replicaset-web-1"]["spec"]["minMember"] == 1


def test_somebody_elses_podgroup_is_left_alone(cluster: Cluster) -> None:
    theirs = json.dumps(group("replicaset-web-1", 7)).encode()
    assert cluster.client.request("POST", GROUPS, theirs).ok
    assert cluster.told(*cluster.web(2)) == 1
    found = cluster.groups()["replicaset-web-1"]
    assert found["spec"]["minMember"] == 7
    assert "status" not in found
    assert cluster.told() == 0


def test_one_that_was_deleted_comes_back(cluster: Cluster) -> None:
    cluster.told(*cluster.web(2))
    assert cluster.client.request("DELETE", f"{GROUPS}/replicaset-web-1").ok
    assert cluster.told() == 0
    cluster.clock.now += AGAIN_S
    assert cluster.told() == 1
    assert list(cluster.groups()) == ["replicaset-web-1"]


def test_it_goes_with_the_controller(cluster: Cluster) -> None:
    cluster.told(*cluster.web(2))
    assert cluster.client.request("DELETE", f"{OWNERS['ReplicaSet']}/web-1").ok
    eventually(lambda: cluster.groups() == {})


def test_who_has_a_podgroup_or_is_alone_gets_none(cluster: Cluster) -> None:
    facts: list[Fact] = [
        factories.gang("g", 1),
        factories.pod("p", 1, gang="g"),
        factories.pod("q", 1),
    ]
    assert cluster.told(*facts) == 0
    assert cluster.groups() == {}


def test_only_the_leader_writes(cluster: Cluster) -> None:
    cluster.leads = False
    assert cluster.told(*cluster.web(2)) == 0
    assert cluster.groups() == {}


def test_a_round_has_a_bound_and_the_next_one_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podgroup_mirror, "WRITES_MOST", 1)
    cluster.told(*cluster.jobset(), *cluster.web(2))
    assert len(cluster.groups()) == 1
    cluster.told()
    assert len(cluster.groups()) == 2


class Refusing(Client):
    """Answers all requests about one PodGroup with 503."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name

    def request(self, method: str, path: str, *args: Any, **more: Any) -> Reply:
        if self._name in path or self._name.encode() in (args[0] if args and args[0] else b""):
            return Reply(503, b"{}")
        return self._client.request(method, path, *args, **more)


def test_a_podgroup_that_cannot_be_written_leaves_its_turn_to_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.told(*cluster.jobset(), *cluster.web(2))
    names = sorted(cluster.groups())
    for name in names:
        cluster.client.request("DELETE", f"{GROUPS}/{name}")
    monkeypatch.setattr(podgroup_mirror, "WRITES_MOST", 1)
    runtime: Any = cluster.clock
    for name in names:
        client = Refusing(cluster.client, name)
        mirror = PodGroupMirror(client, cluster, may_act=lambda: True, runtime=runtime)
        for _ in names:
            assert mirror.check() == 1
        assert cluster.groups().keys() == set(names) - {name}
        for other in cluster.groups():
            cluster.client.request("DELETE", f"{GROUPS}/{other}")


def test_what_is_written_is_no_gang(cluster: Cluster) -> None:
    """Else it would be a second one without pods, with a place in the queue."""
    cluster.told(*cluster.web(2))
    [raw] = cluster.groups().values()
    assert READER.podgroup(raw) == GangGone("ml", "replicaset-web-1")
