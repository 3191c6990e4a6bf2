"""CompositePodGroups of scheduling.k8s.io in scenarios: groups of PodGroups that start together."""

from collections import Counter
from typing import Any

import pytest

from protos.names import RACK
from tests.central.simulator.manifests import Simulate, node, pod

Json = dict[str, Any]
BLOCK = "lockstep.dev/block"
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


def composite(name: str, least: int | None, parent: str = "", level: str = "", **spec: Any) -> Json:
    """least: None: the policy basic."""
    policy = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **_common(parent, level), **spec},
    }


def group(name: str, least: int, parent: str = "", level: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": least}},
            **_common(parent, level),
            **spec,
        },
    }


def _common(parent: str, level: str) -> Json:
    found: Json = {"workloadRef": {"workloadName": "serve", "templateName": "t"}}
    if parent:
        found["parentCompositePodGroupName"] = parent
    if level:
        found["schedulingConstraints"] = {"topology": [{"key": level}]}
    return found


def members(of: str, count: int, gpus: int = 8, *, at: str = "", priority: str = "") -> list[Json]:
    made = [pod(f"{of}-{i}", gpus, at=at, priority_class=priority) for i in range(count)]
    for each in made:
        each["spec"]["schedulingGroup"] = {"podGroupName": of}
    return made


def nodes(count: int, per_rack: int = 2, per_block: int = 4) -> list[Json]:
    made = [node(f"n{index}", rack=f"r{index // per_rack}") for index in range(count)]
    for index, each in enumerate(made):
        each["metadata"]["labels"][BLOCK] = f"b{index // per_block}"
    return made


def places(found: Json) -> dict[str, str]:
    return {placed["pod"]: placed["node"] for placed in found["placements"]}


def reasons(found: Json) -> dict[str, str]:
    return {each["name"]: each["reason"] for each in found["waiting"]}


def test_prefill_and_decode_start_together_or_not_at_all(simulate: Simulate) -> None:
    objects = [
        composite("serve", 2),
        group("prefill", 2, "serve"),
        group("decode", 2, "serve"),
        *members("prefill", 2),
        *members("decode", 2),
    ]
    assert len(places(simulate(*nodes(4), *objects))) == 4
    refused = simulate(*nodes(3), *objects)
    assert places(refused) == {}
    assert list(reasons(refused)) == ["compositepodgroup/serve"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_objects_of_a_tree_come_in_any_order(simulate: Simulate, order: int) -> None:
    objects = [
        *nodes(3),
        composite("serve", 2),
        composite("prefill", 1, "serve"),
        composite("decode", 2, "serve"),
        *(group(f"{role}-{i}", 1, role) for role in ("prefill", "decode") for i in range(2)),
        *(p for role in ("prefill", "decode") for i in range(2) for p in members(f"{role}-{i}", 1)),
    ][::order]
    assert sorted(name.rpartition("-")[0] for name in places(simulate(*objects))) == [
        "decode-0",
        "decode-1",
        "prefill-0",
    ]


def test_later_groups_start_one_by_one(simulate: Simulate) -> None:
    """Two of four replicas are the minimum; a third one fits, and none starts in part."""
    found = simulate(
        *nodes(7),
        composite("serve", 2),
        *(group(f"replica-{i}", 2, "serve") for i in range(4)),
        *(each for i in range(4) for each in members(f"replica-{i}", 2)),
    )
    started = Counter(name[: len("replica-0")] for name in places(found))
    assert sorted(started.values()) == [2, 2, 2]


def test_groups_whose_pods_exist_are_enough(simulate: Simulate) -> None:
    """The pods of the first group never come; the groups differ in size."""
    found = simulate(
        *nodes(4),
        composite("serve", 2),
        group("a", 1, "serve"),
        group("b", 2, "serve"),
        group("c", 1, "serve"),
        *members("b", 2),
        *members("c", 1),
    )
    assert sorted(places(found)) == ["b-0", "b-1", "c-0"]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (
            [composite("serve", 2), group("a", 1, "serve"), *members("a", 1)],
            "CompositePodGroup serve needs 2 groups to start, 1 exist",
        ),
        (
            [
                composite("serve", 1),
                composite("inner", 2, "serve"),
                *(group(name, 2, "inner") for name in "ab"),
                *members("a", 2),
                *members("b", 1),
            ],
            "needs 4 pods to start, 3 exist",
        ),
        (
            [
                composite("serve", 1),
                composite("inner", 2, "serve"),
                *(group(name, 1, "inner") for name in "ab"),
                *members("a", 2),
            ],
            "CompositePodGroup inner needs 2 PodGroups of 1 pod to start, the existing pods complete 1",
        ),
    ],
)
def test_what_is_missing_names_the_group(
    simulate: Simulate, objects: list[Json], reason: str
) -> None:
    found = simulate(*nodes(4), *objects)
    assert reasons(found) == {"compositepodgroup/serve": reason}


def test_each_level_keeps_its_constraint(simulate: Simulate) -> None:
    """All in one block, each role in one rack, each replica on one node; the roles' groups are unlike."""
    found = simulate(
        *nodes(8),
        composite("serve", 2, level=BLOCK),
        composite("prefill", 2, "serve", RACK),
        composite("decode", 2, "serve", RACK),
        group("leader", 1, "prefill"),
        group("workers", 2, "prefill", "kubernetes.io/hostname"),
        *(group(f"d{i}", 2, "decode", "kubernetes.io/hostname") for i in range(2)),
        *members("leader", 1),
        *members("workers", 2, 4),
        *members("d0", 2, 4),
        *members("d1", 2, 4),
    )
    where = {name: int(place[1:]) for name, place in places(found).items()}
    assert len(where) == 7
    assert len({at // 4 for at in where.values()}) == 1
    assert len({at // 2 for name, at in where.items() if name[0] in "lw"}) == 1
    assert len({at // 2 for name, at in where.items() if name[0] == "d"}) == 1
    assert len({where[f"workers-{i}"] for i in range(2)}) == 1
    assert len({where[f"d0-{i}"] for i in range(2)}) == 1


def test_a_role_that_fits_in_no_rack_keeps_all_waiting(simulate: Simulate) -> None:
    found = simulate(
        *nodes(8),
        composite("serve", 2),
        composite("prefill", 3, "serve", RACK),
        group("decode", 1, "serve"),
        *(group(f"p{i}", 1, "prefill") for i in range(3)),
        *(each for i in range(3) for each in members(f"p{i}", 1)),
        *members("decode", 1),
    )
    assert places(found) == {}
    assert "rack" in reasons(found)["compositepodgroup/serve"]


def test_unlike_groups_share_the_domain_of_the_one_around_them(simulate: Simulate) -> None:
    """Each rack has one free node, and the leader and its workers are in one rack or nowhere."""
    found = simulate(
        *nodes(4),
        *(pod(f"busy-{i}", 8, on=f"n{i}") for i in (0, 2)),
        composite("serve", 1),
        composite("prefill", 2, "serve", RACK),
        group("leader", 1, "prefill"),
        group("workers", 1, "prefill", "kubernetes.io/hostname"),
        *members("leader", 1),
        *members("workers", 1),
    )
    assert all("busy" in name for name in places(found))


def test_an_inner_group_without_pods_holds_up_no_other(simulate: Simulate) -> None:
    found = simulate(
        *nodes(2),
        composite("serve", 1),
        composite("x", 1, "serve"),
        composite("y", 1, "serve"),
        group("absent", 1, "x"),
        group("there", 2, "y"),
        *members("there", 2),
    )
    assert sorted(places(found)) == ["there-0", "there-1"]


def test_an_inner_group_of_the_basic_policy_needs_one_of_its_groups(simulate: Simulate) -> None:
    found = simulate(
        *nodes(1),
        composite("serve", 2),
        composite("prefill", None, "serve"),
        group("a", 1, "prefill"),
        group("b", 1, "serve"),
        *members("a", 1),
        *members("b", 1),
    )
    assert places(found) == {}


def test_groups_of_the_basic_policy_are_gangs_of_their_own(simulate: Simulate) -> None:
    found = simulate(
        *nodes(2),
        composite("serve", None),
        group("a", 1, "serve"),
        group("b", 2, "serve"),
        *members("a", 1),
        *members("b", 2),
    )
    assert list(places(found)) == ["a-0"]
    assert list(reasons(found)) == ["podgroup/b"]


def test_a_constraint_joins_the_groups_of_the_basic_policy(simulate: Simulate) -> None:
    """Both racks have one free node; the second group waits, because the first is in another rack."""
    found = simulate(
        *nodes(4),
        *(pod(f"busy-{i}", 8, on=f"n{i}") for i in (0, 2)),
        composite("serve", None, level=RACK),
        *(group(name, 1, "serve") for name in "ab"),
        *members("a", 1),
        *members("b", 1),
    )
    assert sum("busy" not in name for name in places(found)) == 1


def deep(levels: int) -> list[Json]:
    names = [f"c{index}" for index in range(levels)]
    chain = [composite(n, 1, above) for n, above in zip(names, ["", *names], strict=False)]
    return [*chain, group("g", 1, names[-1]), *members("g", 1)]


@pytest.mark.parametrize(
    ("objects", "waits", "reason"),
    [
        (
            [group("a", 1, "serve"), *members("a", 1)],
            "podgroup/a",
            "spec.parentCompositePodGroupName: CompositePodGroup serve does not exist",
        ),
        (deep(5), "podgroup/g", "more than 4 levels of CompositePodGroups, or a circle"),
        (
            [composite("x", 1, "y"), composite("y", 1, "x"), group("a", 1, "x"), *members("a", 1)],
            "podgroup/a",
            "more than 4 levels of CompositePodGroups, or a circle",
        ),
    ],
)
def test_a_wrong_tree_says_why(
    simulate: Simulate, objects: list[Json], waits: str, reason: str
) -> None:
    found = simulate(*nodes(2), *objects, pod("other", 8))
    assert list(places(found)) == ["other"]
    assert reason in reasons(found)[waits]


def test_four_levels_are_accepted(simulate: Simulate) -> None:
    assert list(places(simulate(*nodes(1), *deep(4)))) == ["g-0"]


def test_a_tree_is_evicted_as_a_whole(simulate: Simulate) -> None:
    """Half of it would be of no use."""
    found = simulate(
        *nodes(2),
        HIGH,
        composite("serve", 2),
        *(group(name, 1, "serve") for name in "ab"),
        *members("a", 1),
        *members("b", 1),
        pod("urgent", 8, at="10s", priority_class="high"),
    )
    assert sorted(one["pod"] for one in found["evictions"]) == ["a-0", "b-0"]


@pytest.mark.parametrize(("policy", "evicted"), [("PreemptLowerPriority", 1), ("Never", 0)])
def test_the_preemption_policy(simulate: Simulate, policy: str, evicted: int) -> None:
    found = simulate(
        *nodes(1),
        HIGH,
        pod("low", 8),
        composite("serve", 1, priorityClassName="high", preemptionPolicy=policy),
        group("a", 1, "serve"),
        *members("a", 1, at="10s", priority="high"),
    )
    assert len(found["evictions"]) == evicted


@pytest.mark.parametrize("count", [3, 4])
def test_a_later_composite_starts_with_the_groups_that_it_needs(
    simulate: Simulate, count: int
) -> None:
    """The first of two replicas of prefill and decode is the minimum; the second starts whole or not at all."""
    objects = [composite("serve", 1)]
    for replica in "ab":
        objects.append(composite(replica, 2, "serve"))
        for role in ("prefill", "decode"):
            objects += [group(f"{replica}-{role}", 1, replica), *members(f"{replica}-{role}", 1)]
    found = places(simulate(*nodes(count), *objects))
    started = sorted(name.rpartition("-")[0] for name in found)
    assert started == sorted(
        f"{r}-{role}" for r in "ab"[: count // 2] for role in ("prefill", "decode")
    )


def test_a_later_composite_waits_for_a_group_without_pods(simulate: Simulate) -> None:
    objects = [composite("serve", 1), composite("a", 1, "serve"), composite("b", 2, "serve")]
    objects += [group("a-0", 1, "a"), *members("a-0", 1)]
    objects += [group("b-0", 1, "b"), *members("b-0", 1), group("b-1", 1, "b")]
    assert list(places(simulate(*nodes(4), *objects))) == ["a-0-0"]
    objects += members("b-1", 1, at="20s")
    assert sorted(places(simulate(*nodes(4), *objects))) == ["a-0-0", "b-0-0", "b-1-0"]


@pytest.mark.parametrize(("mode", "gone"), [("all", ["a-0", "b-0"]), ("single", ["a-0"])])
def test_groups_of_disruption_mode_all_are_evicted_together(
    simulate: Simulate, mode: str, gone: list[str]
) -> None:
    """Though the policy basic starts them one by one."""
    objects = [composite("serve", None, disruptionMode={mode: {}})]
    for name in "ab":
        objects += [group(name, 1, "serve"), *members(name, 1)]
    urgent = pod("urgent", 8, at="10s", priority_class="high")
    urgent["spec"]["nodeSelector"] = {RACK: "r0"}
    found = simulate(*nodes(2, per_rack=1), HIGH, *objects, urgent, flags=("--until", "60s"))
    assert sorted(each["pod"] for each in found["evictions"]) == gone
