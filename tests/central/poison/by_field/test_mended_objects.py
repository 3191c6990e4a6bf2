"""An object that was odd and is mended is treated as if it had never been: its gang is placed, whichever field of the
pod, its group or its queue was wrong."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from central.kube.decode.fields import MalformedObject
from central.model.decisions import Bind
from central.model.facts import Fact
from central.model.json_types import Json
from protos.names import GROUP_NAMES
from tests.central.kube.raw_objects import container
from tests.central.poison.by_field.field_check import as_sent
from tests.central.poison.by_field.field_walk import MANY, Change, apply, changes
from tests.central.poison.world import World, kinds

PODS, GROUPS, QUEUES = "pods", "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"
BACKOFF_S = 600.0
SPAN = 8  # cycles in which the mended gang must be placed; it waits for its backoff


def objects(number: int) -> dict[str, Json]:
    name = f"g{number}"
    meta = {"name": name, "namespace": "odd", "uid": f"u-{name}", "annotations": {}, "labels": {}}
    containers = [container("main", gpu=1)]
    return {
        QUEUES: {"metadata": {"name": f"q{number}", "uid": f"uq-{number}"}, "spec": {"weight": 1}},
        GROUPS: {"metadata": meta, "spec": {"minMember": 1, "queue": f"q{number}"}, "status": {}},
        PODS: {
            "metadata": {
                **meta,
                "name": f"p{number}",
                "uid": f"up-{number}",
                "annotations": {GROUP_NAMES[0]: name},
            },
            "spec": {"schedulerName": "lockstep", "containers": containers, "tolerations": []},
            "status": {"phase": "Pending"},
        },
    }


def facts(raws: dict[str, Json]) -> Iterator[Fact]:
    """Those that can be read."""
    for kind, raw in raws.items():
        try:
            found: Any = kinds()[kind].seen(raw)
        except MalformedObject:
            continue
        yield found


def is_identity(change: Change) -> bool:
    """An object of another name is another object; a pod that has ended, is bound or deleted is no pending one."""
    *_, last = change.path
    ends = ("name", "namespace", "uid", "metadata", "status", "phase")
    return last in ends or change.how == MANY


def chosen(kind: str, each: int | None) -> list[Change]:
    dice = random.Random(kind)
    known = [change for change in changes(objects(0)[kind]) if not is_identity(change)]
    return known if each is None else dice.sample(known, each)


@pytest.mark.parametrize(
    "each", [60, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("kind", [PODS, GROUPS, QUEUES])
def test_its_gang_is_placed(kind: str, each: int | None) -> None:
    world = World()
    for number, change in enumerate(chosen(kind, each)):
        good = objects(number)
        odd = {**good, kind: apply(good[kind], change)}
        as_sent(odd)
        decisions = _turn(world, *facts(odd))
        placed = _is_placed(decisions, number)
        again = list(facts(good))
        for _ in range(SPAN):
            if placed:
                break
            placed = _is_placed(_turn(world, *again), number)
            again, world.now = [], world.now + BACKOFF_S
        assert placed, str(change)
        world.cycle(*_gone(good))


def _turn(world: World, *found: Fact) -> list[Any]:
    decisions, _ = world.cycle(*found)
    failed = list(world.scheduler.quarantine.set_asides.values())
    assert not failed, failed[0].why
    return decisions


def _is_placed(decisions: list[Any], number: int) -> bool:
    return any(isinstance(each, Bind) and each.pod == f"up-{number}" for each in decisions)


def _gone(good: dict[str, Json]) -> list[Fact]:
    gone: list[Any] = [kinds()[kind].gone(good[kind]) for kind in (PODS, GROUPS, QUEUES)]
    return gone
