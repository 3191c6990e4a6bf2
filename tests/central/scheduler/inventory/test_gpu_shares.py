"""GPUs in shares: one after the other is filled, whole ones stay whole, and nothing is sold twice."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import Fact, PodGone
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.gpu_sharing import SHARE
from protos.topology import indices_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))


def scheduler(*names: str, gpus: int = 8) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    what = factories.topology(gpus, PAIRS[: gpus // 2], shares=True)
    facts: list[Fact] = [factories.node(name, gpus=gpus, shares=True) for name in names]
    say(made, *facts, *(factories.report(name, what) for name in names))
    return made


def say(made: Scheduler, *facts: Fact, now: float = 0.0) -> dict[str, tuple[str, list[int]]]:
    """Where pods are bound: node and GPUs."""
    found: dict[str, tuple[str, list[int]]] = {}
    decisions = schedule_once(made, list(facts), now)
    check_invariants(made)
    for each in decisions:
        if isinstance(each, Bind):
            found[each.name] = (each.node, list(indices_of(each.gpus)))
    return found


def reason(made: Scheduler, name: str) -> str:
    return made.state.gangs["ns", name, False].attempt.reason


def test_open_gpus_are_filled_before_another_is_opened() -> None:
    made = scheduler("a", "b")
    first = say(made, factories.part("p1", 30))["p1"]
    for name, share in (("p2", 50), ("p3", 20)):
        assert say(made, factories.part(name, share))[name] == first
    node, gpus = say(made, factories.part("p4", 10))["p4"]
    assert node == first[0]
    assert gpus != first[1]


def test_the_tightest_open_gpu_takes_it() -> None:
    made = scheduler("a")
    big, small = (
        say(made, factories.part("big", 80))["big"],
        say(made, factories.part("small", 40))["small"],
    )
    assert big != small
    assert say(made, factories.part("x", 20))["x"] == big
    assert say(made, factories.part("y", 20))["y"] == small


def test_a_share_opens_the_gpu_that_pairs_miss_least() -> None:
    made = scheduler("a")
    say(made, factories.pod("w", 1))
    assert say(made, factories.part("p", 10))["p"][1] == [1]  # 0 is w's: the pair is broken


def test_open_gpus_are_nobodys_whole_ones_and_come_back() -> None:
    made = scheduler("a", gpus=2)
    say(made, factories.part("p", 30))
    assert not say(made, factories.pod("w", 2))
    assert "1 of 2 GPUs free" in reason(made, "w")
    assert say(made, replace(factories.part("p", 30, node="a"), phase="Succeeded"))["w"][1] == [
        0,
        1,
    ]
    assert not say(made, factories.part("q", 1))
    assert say(made, PodGone("uid-w"))["q"] == ("a", [0])


def test_what_pod_resources_says_goes_before_plans() -> None:
    """The kubelet took another GPU: who was planned there is planned elsewhere."""
    made = scheduler("a", gpus=2)
    say(made, factories.part("p", 60), factories.part("q", 60))
    assert {made.state.pods["uid-p"].gpus, made.state.pods["uid-q"].gpus} == {1, 2}
    other = made.state.pods["uid-q"].gpus.bit_length() - 1
    what = factories.topology(2, PAIRS[:1], shares=True)
    grants = (factories.grant_part("p", other, 60),)
    say(made, factories.report("a", what, 2, grants))
    assert made.state.pods["uid-p"].gpus == 1 << other
    assert made.state.pods["uid-q"].gpus == 1 << (1 - other)
    plans = {plan.pod: plan for plan in made.state.planned_devices("a")}
    assert plans["q"].device_ids == (f"GPU-{1 - other}",)
    assert plans["q"].limits == ((SHARE, 60),)
    assert "p" not in plans


def test_all_containers_of_a_pod_are_planned_on_one_gpu() -> None:
    made = scheduler("a")
    pod = factories.part("p", 70)
    spec = replace(pod.spec, share_containers=(("x", 30), ("y", 40)))
    say(made, replace(pod, spec=spec))
    plans = {plan.container: plan for plan in made.state.planned_devices("a")}
    assert plans["x"].device_ids == plans["y"].device_ids
    assert (plans["x"].limits, plans["y"].limits) == (((SHARE, 30),), ((SHARE, 40),))
    what = factories.topology(8, PAIRS, shares=True)
    one = replace(factories.grant_part("p", 0, 30), container="x")
    say(made, factories.report("a", what, 2, (one,)))
    assert [plan.container for plan in made.state.planned_devices("a")] == [
        "x",
        "y",
    ]  # y has none yet


def test_strangers_in_shares_are_seen() -> None:
    made = scheduler("a", gpus=2)
    what = factories.topology(2, PAIRS[:1], shares=True)
    say(made, factories.report("a", what, 2, (factories.grant_part("stranger", 1, 90),)))
    assert say(made, factories.part("p", 20))["p"] == ("a", [0])
    assert say(made, factories.part("q", 10))["q"] == ("a", [1])
    assert not say(made, factories.pod("w", 1))


def test_a_gang_of_shares_starts_whole_or_not_at_all() -> None:
    made = scheduler("a", "b", gpus=2)
    pods = [factories.part(f"g-{i}", 40, gang="g") for i in range(9)]
    assert not say(made, factories.gang("g", 9), *pods)
    assert "fits 8 of 9 (400 hundredths of GPUs free, at most 100 on one GPU)" in (
        made.state.gangs["ns", "g", True].attempt.reason
    )
    assert len(say(made, factories.gang("g", 8))) == 8
    say(made, factories.part("more", 30))
    assert "80 hundredths of GPUs free, at most 20 on one GPU" in reason(made, "more")
    shared = Counter((pod.node, pod.gpus) for pod in made.state.pods.values() if pod.node)
    assert set(shared.values()) == {2}


def test_shares_of_a_gang_are_of_one_island_where_that_is_required() -> None:
    made = scheduler("a", gpus=4)
    say(made, factories.pod("w", 1))  # the first pair is broken
    pods = [factories.part(f"g-{i}", 60, gang="g") for i in range(3)]
    bound = say(made, factories.gang("g", 2, topology_required="island"), *pods)
    assert bound == {"g-0": ("a", [2]), "g-1": ("a", [3])}
    assert not say(made, now=1.0)
    assert made.state.gangs["ns", "g", True].attempt.reason == (
        "needs 1 pod x 60 hundredths of a GPU in one island; the island of node a, where the "
        "rest of the gang is, fits 0 of 1 (180 hundredths of GPUs free, at most 100 on one GPU)"
    )


def test_who_offers_no_shares_gets_none() -> None:
    made = new_scheduler(factories.LEVELS)
    say(made, factories.node("a"), factories.report("a"), factories.part("p", 30))
    assert "no node there offers GPU shares" in reason(made, "p")


def test_a_gpu_that_is_offered_no_more_keeps_its_pods_and_takes_no_others() -> None:
    made = scheduler("a", gpus=2)
    say(made, factories.part("p", 30))
    at = made.state.pods["uid-p"].gpus.bit_length() - 1
    what = factories.topology(2, PAIRS[:1], shares=True)
    gpus = tuple(replace(gpu, shares=100 * (gpu.index != at)) for gpu in what.gpus)
    say(
        made,
        factories.report("a", replace(what, gpus=gpus), 2, (factories.grant_part("p", at, 30),)),
    )
    assert made.state.pods["uid-p"].gpus == 1 << at
    assert say(made, factories.part("q", 30))["q"] == ("a", [1 - at])
    say(made, PodGone("uid-p"))
    assert say(made, factories.pod("w", 1))["w"] == ("a", [at])


def test_sick_gpus_take_no_more_shares() -> None:
    made = scheduler("a", gpus=2)
    say(made, factories.part("p", 30))
    at = made.state.pods["uid-p"].gpus.bit_length() - 1
    what = factories.topology(2, PAIRS[:1], sick=(at,), shares=True)
    say(made, factories.report("a", what, 2, (factories.grant_part("p", at, 30),)))
    assert say(made, factories.part("q", 30))["q"] == ("a", [1 - at])


def test_the_less_urgent_share_gives_way_to_the_urgent() -> None:
    made = scheduler("a", gpus=1)
    say(made, factories.part("low", 60))
    say(made, replace(factories.part("low", 60, node="a"), phase="Running"))
    decisions = schedule_once(made, [factories.part("urgent", 50, priority=5)], 10.0)
    check_invariants(made)
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["low"]
    assert say(made, PodGone("uid-low"), now=11.0)["urgent"] == ("a", [0])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_books_hold_whatever_comes_and_goes(seed: int) -> None:
    """Whole GPUs and shares at random; what is bound must fit in a world that counts by itself."""
    dice = random.Random(seed)
    made = scheduler("a", "b", "c", gpus=4)
    whole: dict[str, list[tuple[str, int]]] = {}
    parts: dict[str, tuple[str, int, int]] = {}
    asks: dict[str, int] = {}
    for step in range(120):
        facts: list[Fact] = []
        name = f"p-{step}"
        if dice.random() < 0.5:
            asks[name] = dice.choice((5, 10, 25, 30, 50, 70, 100))
            facts.append(factories.part(name, asks[name]))
        else:
            asks[name] = 0
            facts.append(factories.pod(name, dice.choice((1, 1, 2, 4))))
        for gone in [each for each in (*whole, *parts) if dice.random() < 0.15]:
            whole.pop(gone, None)
            parts.pop(gone, None)
            facts.append(PodGone(f"uid-{gone}"))
        for pod, (node, gpus) in say(made, *facts, now=float(step)).items():
            if asks[pod]:
                assert len(gpus) == 1
                parts[pod] = (node, gpus[0], asks[pod])
            else:
                whole[pod] = [(node, gpu) for gpu in gpus]
        held = Counter(place for places in whole.values() for place in places)
        used: Counter[tuple[str, int]] = Counter()
        for node, gpu, share in parts.values():
            used[node, gpu] += share
        assert max(held.values(), default=0) <= 1
        assert max(used.values(), default=0) <= 100
        assert not held.keys() & used.keys()


def test_one_kind_fills_every_gpu_to_the_last_hundredth() -> None:
    made = scheduler("a", "b", gpus=4)
    pods = [factories.part(f"p-{i}", 30) for i in range(30)]
    bound = say(made, *pods)
    assert len(bound) == 8 * 3
