"""How members of an elastic Job go that nobody decided to take: lost, or on a node that is being drained."""

from dataclasses import replace
from typing import Any

import pytest

from central.controllers.composite import jobs_of
from central.controllers.job.job import RequestedSize
from central.model.facts import Taint
from tests.central.controllers.job.job_api import NAMESPACE, Api
from tests.central.controllers.job.test_elastic import elastic, members

RESTARTS: dict[str, Any] = {"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}


def on(api: Api, node: str) -> list[str]:
    """Names of the workers there that are not on their way out."""
    return [name for name in api.pods() if api.there["Pod", name]["spec"].get("nodeName") == node]


def sizes(api: Api) -> list[tuple[str, str, str]]:
    """Reason, type and message of the Events about its size."""
    kinds = ("Grew", "Shrank", "MemberLost")
    found = [event for event in api.events() if event["reason"] in kinds]
    return [(event["reason"], event["type"], event["message"]) for event in found]


def two_nodes(least: int = 2, **more: Any) -> Api:
    """Sixteen members, eight on each node. Pods take three steps to go."""
    api = Api(nodes=2)
    api.apply(elastic(least=least, most=16, **more))
    api.settle()
    assert (len(on(api, "n0")), len(on(api, "n1"))) == (8, 8)
    api.grace_steps = 3
    return api


def generation(api: Api) -> int:
    return int(api.status()["elastic"]["worker"]["generation"])


def test_members_on_a_drained_node_leave_by_one_plan() -> None:
    """Also those that a disruption budget still keeps there; and no policy for evictions acts."""
    api = two_nodes(**RESTARTS)
    before, stay = generation(api), set(on(api, "n1"))
    api.cordon("n0")
    api.evict(on(api, "n0")[3])
    api.settle()
    assert set(api.pods()) == stay
    assert generation(api) == before + 1
    assert api.status()["elastic"]["worker"]["reason"] == "node n0 is drained"
    assert sizes(api)[-1] == (
        "Shrank",
        "Normal",
        "task worker: 16 to 8 members; node n0 is drained",
    )
    assert (api.phase(), api.status()["retryCount"]) == ("Running", 0)


def test_a_cordon_alone_takes_nobody() -> None:
    api = two_nodes()
    before = generation(api)
    api.cordon("n0")
    api.wait(120.0)
    assert (len(on(api, "n0")), generation(api)) == (8, before)


@pytest.mark.long
def test_a_drained_node_takes_no_member_below_the_least_size() -> None:
    """Those who go first are the ones that are being taken already. The others are made again when they are taken."""
    api = two_nodes(least=14)
    api.cordon("n0")
    taken = sorted(on(api, "n0"))[:1]
    api.evict(taken[0])
    api.settle()
    assert len(api.pods()) == 14
    assert taken[0] not in api.pods()
    assert len(on(api, "n0")) == 6
    for name in on(api, "n0"):
        api.evict(name)
    api.settle()
    assert api.status()["elastic"]["worker"]["size"] == 14, "they wait for seats elsewhere"


def test_a_loss_beside_a_drained_node() -> None:
    api = two_nodes(least=12)
    api.cordon("n0")
    api.evict(on(api, "n0")[0])
    api.evict(on(api, "n1")[0])
    api.settle()
    found = api.status()["elastic"]["worker"]
    assert (found["size"], found["reason"]) == (12, "node n0 is drained")


def test_a_node_that_is_cordoned_after_a_loss_is_not_being_drained() -> None:
    api = two_nodes()
    api.evict(on(api, "n0")[0])
    api.step()
    api.cordon("n0")
    api.settle()
    assert len(on(api, "n0")) == 7


@pytest.mark.parametrize(
    ("key", "leave"), [("ToBeDeletedByClusterAutoscaler", 8), ("example.com/other", 1)]
)
def test_a_node_autoscaler_taints_before_it_empties(key: str, leave: int) -> None:
    api = two_nodes()
    [node] = [seen for seen in api._nodes if seen.name == "n0"]
    api.tell(replace(node, taints=(Taint(key, "", "NoSchedule"),)))
    api.evict(on(api, "n0")[0])
    api.settle()
    assert len(api.pods()) == 16 - leave


def test_a_lost_member_says_where_it_was() -> None:
    api = two_nodes()
    victim = on(api, "n1")[2]
    api.evict(victim)
    for _ in range(2):
        api.step()
    number = victim.rpartition("-")[2]
    assert number not in members(api).replace("-", ",").split(",")
    message = "task worker: 16 to 15 members; 1 member lost on n1"
    assert ("MemberLost", "Warning", message) in sizes(api)


def test_a_member_that_the_scheduler_evicts_is_not_lost() -> None:
    api = two_nodes()
    api.cordon("n1")
    job = jobs_of(api.cluster).by_name[NAMESPACE, "j"]
    pod = next(pod for pod in job.pods.values() if pod.node == "n1")
    job._lose(pod, api.now, by_scheduler=True)
    jobs_of(api.cluster).changed[job.key] = None
    api.step()
    said = "task worker: 16 to 15 members; 1 member evicted by the scheduler"
    assert sizes(api)[-1] == ("Shrank", "Normal", said)


def test_a_growth_keeps_a_lost_member_that_was_made_again() -> None:
    """At the least size a lost member stays in the set. Room for more comes before its new pod runs."""
    api = Api(nodes=1)
    api.apply(elastic(least=8, most=16))
    api.settle()
    job = jobs_of(api.cluster).by_name[NAMESPACE, "j"]
    victim = on(api, "n0")[0]
    [node] = [seen for seen in api._nodes if seen.name == "n0"]
    api.tell(replace(node, taints=(Taint("example.com/other", "", "NoSchedule"),)))
    api.evict(victim)
    while victim not in job.current() or victim not in job.lost:
        api.step()
    made = job.current()[victim].uid
    job.resize = RequestedSize(tuple(range(9)), "there is room for more")
    jobs_of(api.cluster).changed[job.key] = None
    api.step()
    assert sizes(api)[-1][2] == "task worker: 8 to 9 members; there is room for more"
    api.settle()
    assert job.current()[victim].uid == made
