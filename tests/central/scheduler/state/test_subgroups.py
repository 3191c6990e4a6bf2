"""Subgroups by themselves: which are complete, what they lack, and what starts next."""

from dataclasses import replace

from central.model.facts.gang_facts import SubGroups
from central.model.pod_rules import Expression
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.subgroups import SubgroupDivision
from tests.central import factories


def pods(slice_: str, *numbers: int, task: str = "", policy: str = "p") -> list[Pod]:
    """Members of one subgroup of the policy; an empty slice: of none."""
    labels = (("of", policy), ("slice", slice_)) if slice_ else ()
    return [
        Pod(seen, seen.spec)
        for number in numbers
        for seen in [replace(factories.pod(f"m-{number}", labels=labels), task=task)]
    ]


def policy(name: str = "p", size: int = 2, least: int = 0) -> SubGroups:
    selects = (Expression("of", "In", (name,)),)
    return SubGroups(name, size, least, labels=selects, keys=("slice",))


def started(division: SubgroupDivision, missing: int, **tasks: int) -> list[list[str]]:
    units = division.units_to_start(missing, tasks)
    return [[pod.seen.name for pod in unit] for _, unit in units]


def test_complete_subgroups_count_towards_the_least() -> None:
    """One of two runs already, so one more starts, though two could."""
    two = policy(least=2)
    waiting = [*pods("b", 2, 3), *pods("c", 4, 5)]
    division = SubgroupDivision.of([two], waiting, pods("a", 0, 1))
    assert division.missing() == 2
    assert started(division, 2) == [["m-2", "m-3"]]


def test_nothing_starts_if_the_pods_are_fewer_than_the_gang_is_missing() -> None:
    one = policy(least=1)
    division = SubgroupDivision.of([one], [*pods("a", 0, 1), *pods("", 2)], [])
    assert started(division, 3) == [["m-0", "m-1"], ["m-2"]]
    assert started(division, 4) == []


def test_nothing_starts_if_a_task_or_a_policy_is_short() -> None:
    one = policy(least=1)
    alone = SubgroupDivision.of([one], [*pods("a", 0), *pods("", 1, 2, task="ps")], [])
    assert started(alone, 1) == [], "the subgroup is incomplete"
    alone = SubgroupDivision.of([policy()], [*pods("a", 0), *pods("", 1, 2, task="ps")], [])
    assert started(alone, 1) == [["m-1"]]
    assert started(alone, 1, ps=2) == [["m-1"], ["m-2"]]
    assert started(alone, 1, ps=3) == []


def test_tasks_come_before_the_first_ranks_and_units_are_in_rank_order() -> None:
    waiting = [*pods("", 0, 1, task="worker"), *pods("", 2, task="ps")]
    division = SubgroupDivision.of([], waiting, [])
    assert started(division, 1, ps=1) == [["m-2"]]
    assert started(division, 2, ps=1) == [["m-0"], ["m-2"]]


def test_what_a_policy_lacks_counts_its_nearest_subgroups() -> None:
    """One of three lacks one pod, one lacks two; others that do not exist lack all."""
    three = [policy(size=3, least=least) for least in (1, 2, 3)]
    for least, missing in zip(three, (1, 3, 6), strict=True):
        division = SubgroupDivision.of([least], pods("b", 3, 4), [*pods("a", 0, 1), *pods("b", 2)])
        assert division.missing() == missing


def test_pods_above_the_size_of_a_subgroup_start_each_alone() -> None:
    division = SubgroupDivision.of([policy()], pods("a", 0, 1, 2, 3), [])
    names = [[pod.seen.name for pod in unit] for _, unit in division.units()]
    assert names == [["m-0", "m-1"], ["m-2"], ["m-3"]]
    grown = SubgroupDivision.of([policy()], pods("a", 2), pods("a", 0, 1))
    assert [len(unit) for _, unit in grown.units()] == [1]


def test_reasons_name_what_is_short() -> None:
    members = [*pods("a", 0, 1), *pods("b", 2)]

    def divided(*policies: SubGroups) -> SubgroupDivision:
        return SubgroupDivision.of(policies, members, pods("x", 9, policy="q"))

    assert divided(policy(least=0)).shortage() == ""
    assert divided(policy(least=1)).incomplete_group() == "subgroup p-b has 1 of 2 pods"
    assert divided(policy(least=1)).shortage() == ""
    assert divided(policy(least=1), policy("q", least=1)).shortage() == (
        "subGroupPolicy q needs 1 subgroup of 2 pods to start, the existing pods complete 0"
    )
    assert SubgroupDivision.of([policy()], pods("a", 0, 1), []).incomplete_group() == ""


def test_the_first_policy_that_selects_a_pod_has_it() -> None:
    every = SubGroups("every", 1, keys=("slice",))
    division = SubgroupDivision.of([policy(), every], [*pods("a", 0), *pods("", 1)], [])
    assert [group.policy.name for group in division.groups] == ["p"]
    assert [pod.seen.name for pod in division.ungrouped] == ["m-1"]
