"""Each pod of a gang of unlike pods gets the node that was found for its class."""

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, PodSeen
from central.scheduler import binding
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.snapshot.draft import Draft
from protos.names import GPU, GPU_SHARE
from protos.topology import indices_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

HOMES = ("a", "b", "a", "c")  # the node that each member must have, by a label


def member(index: int, home: str, order: int) -> PodSeen:
    pod = factories.pod(f"p{index}", 1, gang="g", created=float(order))
    return replace(pod, spec=replace(pod.spec, node_selector=(("home", home),)))


@pytest.mark.parametrize("order", sorted(set(permutations(range(len(HOMES))))))
def test_unlike_members_in_any_order(order: tuple[int, ...]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, labels={"home": name}) for name in sorted(set(HOMES))]
    pods = [member(i, HOMES[i], rank) for rank, i in enumerate(order)]
    decisions = schedule_once(scheduler, [*nodes, factories.gang("g", 4), *pods], 0.0)
    check_invariants(scheduler)
    assert {each.name: each.node for each in decisions if isinstance(each, Bind)} == {
        f"p{i}": home for i, home in enumerate(HOMES)
    }


def reported(name: str, gpus: int = 8) -> list[Fact]:
    islands = (tuple(range(gpus // 2)), tuple(range(gpus // 2, gpus)))
    what = factories.topology(gpus, islands, shares=True)
    return [factories.node(name, gpus=gpus, shares=True), factories.report(name, what)]


def drawn_members(dice: random.Random, *, shares: bool) -> list[PodSeen]:
    """Of a few kinds: whole GPUs, none, and shares of one."""
    found = []
    for index in range(dice.randint(2, 9)):
        kind = dice.choice((0, 1, 1, 2, 2, "share" if shares else 1))
        name = f"p-{index}"
        if isinstance(kind, int):
            found.append(factories.pod(name, kind, gang="g", created=float(index)))
        else:
            found.append(factories.part(name, 25, gang="g", created=float(index)))
    return found


@pytest.mark.parametrize("with_reports", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_the_pods_that_are_kept_get_what_was_found_for_them(
    seed: int, *, with_reports: bool
) -> None:
    """Some members get a place of those that were found for all. What the others had is free again."""
    dice = random.Random(seed)
    made = new_scheduler(factories.LEVELS)
    members = drawn_members(dice, shares=with_reports)  # shares need one
    schedule_once(made, [factories.gang("g", len(members)), *members], 0.0)
    for name in "abc":
        node, report = reported(name)
        apply(made, node)
        if with_reports:
            apply(made, report)
    state, gang = made.state, made.state.gangs["ns", "g", True]
    snapshot, draft = state.snapshot, Draft(state.snapshot)
    free = snapshot.columns.free.copy()
    pods = list(gang.counts.waiting)
    specs = list(dict.fromkeys(pod.spec for pod in pods))
    for spec in specs:  # one or more pods of a kind at a time
        left = sum(pod.spec == spec for pod in pods)
        while left:
            count = dice.randint(1, left)
            row = snapshot.columns.row[dice.choice("abc")]
            if int(snapshot.view(spec).refresh().by_row[row]) >= count:
                draft.take(row, spec, count)
                left -= count
    kept = dice.sample(pods, dice.randint(1, len(pods)))
    part = binding.reduce(draft, pods, [pod for pod in pods if pod in kept])
    assert sorted(pod.seen.name for pod in part) == sorted(pod.seen.name for pod in kept)
    assert [each.spec for each in draft.assignments] == [pod.spec for pod in part]
    assert {each.pods for each in draft.assignments} == {1}
    for each in draft.assignments:
        view = snapshot.view(each.spec)
        free[each.row, view.columns] -= view.amounts
    assert (snapshot.columns.free == free).all(), "only what the kept pods take is taken"
    rows = [each.row for each in draft.assignments]
    decisions = binding.binds(state, gang, part, draft.keep())
    assert [each.node for each in decisions] == [snapshot.columns.names[row] for row in rows]
    check_invariants(made)
    held = Counter[tuple[str, int]]()
    for decision, pod in zip(decisions, part, strict=True):
        assert decision.pod == pod.seen.uid
        share = pod.spec.request(GPU_SHARE)
        wanted = bool(share) or pod.spec.request(GPU)
        assert decision.gpus.bit_count() == (wanted if with_reports else 0)
        for gpu in indices_of(decision.gpus):
            held[decision.node, gpu] += share or 100
    assert not with_reports or max(held.values(), default=0) <= 100
    taken = {key for key in held if held[key]}
    for name in "abc" if with_reports else "":
        mask = snapshot.columns.gpus.free_mask[snapshot.columns.row[name]]
        assert set(indices_of(mask)) == {g for g in range(8) if (name, g) not in taken}
