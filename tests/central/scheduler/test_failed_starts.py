"""Gangs whose pods are bound and do not start: they release their GPUs, and are tried again after growing delays."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from central.model.decisions import NO_START, Evict
from central.model.defaults import START_WITHIN_S
from central.model.facts import Fact, PodGone, PodSeen
from central.scheduler import pending_cause, rebuild
from central.scheduler.cycle import due
from central.scheduler.elastic.unready import FIRST_DELAY_S, LAST_DELAY_S, SLOW
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

PULL = "ImagePullBackOff"
KEY = ("ns", "g", True)


class Starts(World):
    """Bound pods of the gang g wait for an image as long as `broken`; evicted ones are created again."""

    def __init__(self, *nodes: Fact, **other: float) -> None:
        self.broken = True
        self.template = 1
        super().__init__(*(nodes or (factories.node("n0"), factories.node("n1"))), **other)

    def says(self, now: float, names: Iterable[str] = (), **fields: Any) -> None:
        """The kubelets say this of the pods; without names: of all that have a node."""
        chosen = set(names)
        facts = [
            replace(seen, **fields)
            for seen in self.running.values()
            if seen.node and not seen.deleting and (not chosen or seen.name in chosen)
        ]
        self.step(now, *facts)

    def fails(self, now: float, names: Iterable[str] = ()) -> None:
        self.says(now, names, phase="Pending", ready=False, stuck=PULL)

    def again(self, now: float, **fields: Any) -> list[str]:
        """The evicted pods are gone, and their controller has created them again."""
        old = [self.running.pop(uid) for uid in self.leaving]
        self.leaving.clear()
        new = [
            replace(
                seen,
                uid=f"{seen.uid}'",
                node="",
                phase="Pending",
                deleting=False,
                ready=True,
                stuck="",
                **fields,
            )
            for seen in old
        ]
        return self.step(now, *(PodGone(seen.uid) for seen in old), *new)

    @property
    def reason(self) -> str:
        return self.cluster.state.gangs[KEY].attempt.reason

    @property
    def cause(self) -> str:
        return pending_cause.cause_of(self.cluster, self.cluster.state.gangs[KEY])

    def causes(self) -> list[str]:
        return [each.cause for each in self.decisions if isinstance(each, Evict)]


def bound(pods: int = 2, **fields: Any) -> Starts:
    world = Starts()
    world.step(1.0, *job("g", pods, **fields))
    return world


def test_a_gang_without_its_image_releases_its_gpus_in_time() -> None:
    world = bound()
    world.fails(2.0)
    assert due(world.cluster, 2.0) == 2.0 + START_WITHIN_S
    world.step(1.0 + START_WITHIN_S)
    assert not world.evicted
    world.step(2.0 + START_WITHIN_S)
    assert sorted(world.evicted) == ["g-0", "g-1"]
    assert world.causes() == [NO_START, NO_START]
    assert world.whys[0] == (
        "gang g: 2 of 2 pods did not become ready within 15 min (ImagePullBackOff; g-0)"
    )
    assert world.step(3.0 + START_WITHIN_S, *job("other", 2)) == []
    world.again(4.0 + START_WITHIN_S)
    assert world.began["other"], "its GPUs are others'"


def test_it_is_tried_again_after_growing_delays_with_one_reason() -> None:
    world, now = bound(), 2.0
    delays = []
    for number in range(1, 9):
        world.fails(now)
        world.step(now := now + START_WITHIN_S)
        assert len(world.evicted) == 2 * number
        assert world.again(now + 1.0) == []
        assert world.cause == "no-start"
        assert f"; try {number + 1} begins at " in world.reason
        assert world.told["g"] == world.reason
        assert world.step(now + 30.0, factories.node(f"m{number}")) == [], "free nodes do not help"
        at = due(world.cluster, now + 30.0)
        assert at is not None
        assert world.step(at - 0.5) == []
        assert len(world.step(at)) == 2
        delays.append(at - now)
        now = at
    assert delays == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]
    assert (delays[0], delays[-1]) == (FIRST_DELAY_S, LAST_DELAY_S)


def released(**fields: Any) -> Starts:
    world = bound(**fields)
    world.fails(2.0)
    world.step(2.0 + START_WITHIN_S)
    assert len(world.evicted) == 2
    return world


def test_with_another_template_it_is_placed_at_once() -> None:
    world = released()
    assert len(world.again(4.0 + START_WITHIN_S, template=7)) == 2


def test_with_another_podgroup_of_the_name_it_is_placed_at_once() -> None:
    world = released()
    world.again(4.0 + START_WITHIN_S)
    assert len(world.step(5.0 + START_WITHIN_S, replace(factories.gang("g", 2), uid="new"))) == 2


def test_a_start_that_succeeds_ends_the_count() -> None:
    world = released()
    world.again(4.0 + START_WITHIN_S)
    now = 2.0 + START_WITHIN_S + FIRST_DELAY_S
    assert len(world.step(now)) == 2
    world.says(now, ready=True)
    assert not world.cluster.elastic.unready.failed
    world.fails(now + 1.0)
    world.step(now + 2 * START_WITHIN_S)
    assert len(world.evicted) == 2, "what has run is not released: its pods' controllers decide"


@pytest.mark.parametrize(
    ("least", "broken", "goes"), [(4, 1, True), (3, 1, False), (3, 2, True), (1, 3, False)]
)
def test_surplus_that_does_not_start_is_no_reason(least: int, broken: int, *, goes: bool) -> None:
    world = Starts()
    world.step(1.0, *job("g", 4, 4, least=least))
    world.fails(2.0, [f"g-{number}" for number in range(broken)])
    world.step(2.0 + START_WITHIN_S)
    assert len(world.evicted) == (4 if goes else 0)


@pytest.mark.parametrize(("tasks", "goes"), [((("ps", 1),), True), ((("ps", 0),), False)])
def test_minima_of_tasks_count(tasks: tuple[tuple[str, int], ...], *, goes: bool) -> None:
    world = Starts()
    group, *pods = job("g", 3, 4, least=2, task_min=tasks)
    first, *others = (each for each in pods if isinstance(each, PodSeen))
    world.step(1.0, group, replace(first, task="ps"), *others)
    world.fails(2.0, ["g-0"])
    world.step(2.0 + START_WITHIN_S)
    assert bool(world.evicted) == goes


@pytest.mark.parametrize(
    ("of_group", "of_pods", "limit_s"),
    [(None, None, START_WITHIN_S), (30.0, 50.0, 30.0), (None, 50.0, 50.0), (0.0, 50.0, 0.0)],
)
def test_the_annotation_goes_before_the_flag(
    of_group: float | None, of_pods: float | None, limit_s: float
) -> None:
    world = Starts()
    group, *pods = job("g", 2, start_within_s=of_group)
    world.step(
        1.0,
        group,
        *(replace(each, start_within_s=of_pods) for each in pods if isinstance(each, PodSeen)),
    )
    world.fails(2.0)
    if not limit_s:
        assert due(world.cluster, 2.0) is None
        return
    world.step(1.5 + limit_s)
    assert not world.evicted
    world.step(2.0 + limit_s)
    assert len(world.evicted) == 2


def test_zero_is_no_limit() -> None:
    world = Starts(start_within_s=0.0)
    world.step(1.0, *job("g", 2))
    world.fails(2.0)
    assert due(world.cluster, 2.0) is None


@pytest.mark.parametrize(
    ("gpus", "fields", "goes"),
    [
        (8, {}, True),
        (0, {}, False),
        (0, {"start_within_s": 60.0}, True),
        (8, {"tied": True}, False),
    ],
)
def test_single_pods_with_gpus_count_as_well(
    gpus: int, fields: dict[str, Any], *, goes: bool
) -> None:
    world = Starts()
    world.step(1.0, replace(factories.pod("p", gpus), **fields))
    world.fails(2.0)
    world.step(2.0 + START_WITHIN_S)
    assert world.evicted == (["p"] if goes else [])


def test_pods_of_one_controller_share_what_is_known() -> None:
    world = Starts()
    pod = replace(factories.pod("web-a", 8), owner_name="replicaset/web", created=1.0)
    world.step(1.0, pod)
    world.fails(2.0)
    world.step(2.0 + START_WITHIN_S)
    assert world.evicted == ["web-a"]
    other = replace(pod, uid="uid-web-b", name="web-b")
    assert world.step(3.0 + START_WITHIN_S, PodGone(pod.uid), other) == []
    assert world.step(2.0 + START_WITHIN_S + FIRST_DELAY_S) == ["web-b"]


def test_a_pod_that_is_never_ready_counts_and_one_that_only_waits_for_a_while_does_not() -> None:
    world = bound()
    world.says(2.0, ["g-1"], ready=False)
    world.step(1.0 + SLOW * START_WITHIN_S)
    world.says(1.5 + SLOW * START_WITHIN_S, ready=True)
    world.step(3 * SLOW * START_WITHIN_S)
    assert not world.evicted
    world = bound()
    world.says(2.0, ["g-1"], ready=False)
    world.step(1.0 + SLOW * START_WITHIN_S)
    assert not world.evicted, "its data may still be on their way"
    world.step(2.0 + SLOW * START_WITHIN_S)
    assert world.whys[0].endswith("1 of 2 pods did not become ready within 60 min (not ready; g-1)")


def test_refused_evictions_are_asked_again() -> None:
    world = bound()
    world.budgets = {"g-0", "g-1"}
    world.fails(2.0)
    world.step(2.0 + START_WITHIN_S)
    assert not world.evicted
    world.budgets = set()
    world.step(2.5 + 2 * START_WITHIN_S)
    assert len(world.evicted) == 2


def test_a_state_that_is_built_again_knows_the_delay() -> None:
    world = released()
    world.again(4.0 + START_WITHIN_S)
    before = world.reason
    rebuild.rebuild(world.cluster)
    assert world.step(5.0 + START_WITHIN_S) == []
    assert (world.cause, world.reason) == ("no-start", before)
