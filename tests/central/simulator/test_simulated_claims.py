"""Who is evicted for a gang of unlike pods, and for pods that a rule keeps from a node with room."""

import random
from typing import Any

import pytest

from protos.names import RACK
from tests.central.simulator.manifests import Simulate, gang, group, node, pod, where

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


def running(name: str, on: str, gpus: int = 1, *, priority: int = 1, **other: Any) -> Json:
    made = pod(name, gpus, on=on, **other)
    made["spec"]["priority"] = priority
    return made


def urgent(*pods: Json) -> list[Json]:
    for each in pods:
        each["spec"]["priority"] = 100
    return [*pods]


def with_launcher(workers: int, **required: str) -> list[Json]:
    """An MPI Job's pods: workers of eight GPUs, and a launcher without any."""
    launcher = pod("launcher", 0, gang="g", at="10s")
    launcher["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
    named, *pods = gang("g", workers, 8, **required)
    for each in pods:
        each["metadata"]["annotations"]["lockstep.dev/arrives-at"] = "10s"
    named["spec"]["minMember"] = workers + 1
    return [named, *urgent(*pods, launcher)]


def evicted(result: Json) -> list[str]:
    return sorted(each["pod"] for each in result["evictions"])


def test_a_gang_with_a_launcher_evicts_as_few_pods_as_one_without(simulate: Simulate) -> None:
    dice = random.Random(7)
    nodes = [node(f"n{i}") for i in range(60)]
    pods = [
        running(f"p{i}-{j}", f"n{i}", priority=dice.randint(1, 5))
        for i in range(60)
        for j in range(8)
    ]
    found = simulate(*nodes, *pods, *with_launcher(2), flags=("--until", "60s"))
    assert len(evicted(found)) == 16
    assert {"g-0", "g-1", "launcher"} <= set(where(found))


def test_a_gang_with_a_launcher_gets_the_rack_with_the_least_urgent_pods(
    simulate: Simulate,
) -> None:
    """In whatever place the rack is among many."""
    racks = 12
    nodes = [node(f"n{r}-{i}", rack=f"r{r:02}") for r in range(racks) for i in range(2)]
    pods = [
        running(f"p{r}-{i}", f"n{r}-{i}", 8, priority=1 if r == racks - 1 else 50)
        for r in range(racks)
        for i in range(2)
    ]
    found = simulate(*nodes, *pods, *with_launcher(2, required=RACK), flags=("--until", "60s"))
    assert evicted(found) == [f"p{racks - 1}-0", f"p{racks - 1}-1"]


@pytest.mark.parametrize("cpus", ["11", "12"])
def test_workers_with_unequal_processors_evict_as_few_gangs_as_equal_ones(
    simulate: Simulate, cpus: str
) -> None:
    """Their GPUs are scarce, not their processors."""
    nodes = [node(name) for name in ("a0", "a1", "b0", "b1", "c")]
    pods = [running(f"large-{i}", f"a{i}", 8, gang="large") for i in range(2)]
    pods += [running(f"small-{i}-{j}", f"b{i}", 4) for i in range(2) for j in range(2)]
    pods.append(running("single", "c", 8))
    workers = [pod(f"g-{i}", 8, gang="g", at="10s") for i in range(2)]
    for each, cpu in zip(workers, cpus, strict=True):
        each["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpu
    wanted = [group("large", 2), group("g", 2), *urgent(*workers)]
    found = simulate(*nodes, *pods, *wanted, flags=("--until", "60s"))
    assert evicted(found) == ["large-0", "large-1"]


def test_the_launcher_gets_victims_of_its_own(simulate: Simulate) -> None:
    """Where the workers' victims leave no processor for it."""
    nodes = [node("a"), node("b"), node("c", 0)]
    pods = [running("a-8", "a", 8), running("b-8", "b", 8)]
    pods += [running(f"c-{i}", "c", 0, priority=1 + i) for i in range(3)]
    for each, cpu in zip(pods, (64, 64, 22, 21, 21), strict=True):
        each["spec"]["containers"][0]["resources"]["limits"]["cpu"] = str(cpu)
    wanted = with_launcher(2)
    for each in wanted[1:-1]:
        each["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "64"
    found = simulate(*nodes, *pods, *wanted, flags=("--until", "60s"))
    assert evicted(found) == ["a-8", "b-8", "c-0"]


APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}
            ]
        }
    }
}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "minDomains": 9,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ]
}


def ruled(each: Json, rule: str) -> Json:
    if rule == "apart":
        each["spec"] |= APART
    elif rule == "port":
        each["spec"]["containers"][0]["ports"] = [{"hostPort": 8080, "containerPort": 8080}]
    else:
        each["spec"] |= SPREAD
        each["metadata"]["labels"] = {"app": "x"}
    return each


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("rule", ["apart", "port", "spread"])
def test_a_victim_that_only_lifts_a_rule(simulate: Simulate, rule: str, members: int) -> None:
    """Nothing else is lacking. Those that hold nothing back stay; two pods apart from others share a node."""
    nodes = [node(f"n{i}") for i in range(members)]
    for each in nodes:
        each["metadata"]["labels"][HOST] = each["metadata"]["name"]
    pods = []
    for i in range(members):
        holder = running(f"holder-{i}", f"n{i}", priority=20, labels={"app": "x"})
        pods += [ruled(holder, rule) if rule == "port" else holder]
        pods += [running(f"other-{i}-{j}", f"n{i}", priority=10) for j in range(3)]
    wanted = [ruled(pod(f"g-{i}", 1, gang="g", at="10s"), rule) for i in range(members)]
    found = simulate(*nodes, *pods, group("g", members), *urgent(*wanted), flags=("--until", "60s"))
    assert evicted(found) == [f"holder-{i}" for i in range(1 if rule == "apart" else members)]
    assert sorted(where(found)) == [f"g-{i}" for i in range(members)]


def test_rules_are_lifted_where_that_harms_least_among_many(simulate: Simulate) -> None:
    nodes = [node(f"n{i:02}") for i in range(60)]
    pods = [
        ruled(running(f"p{i:02}", f"n{i:02}", priority=5 if i == 41 else 6 + i % 9), "port")
        for i in range(60)
    ]
    wanted = ruled(pod("g", 1, at="10s"), "port")
    found = simulate(*nodes, *pods, *urgent(wanted), flags=("--until", "60s"))
    assert evicted(found) == ["p41"]
