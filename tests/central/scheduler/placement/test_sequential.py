"""When pods must be placed one by one: only if one of them can change where another may go."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import PodSpec
from central.model.pod_rules import Apart, Rules
from central.model.volumes import Volumes
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.sequential import pods_affect_each_other
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import RACK
from tests.central import factories

DISKS = Volumes(attach=(("ssd", 2),))
SHARED = Volumes(common=(("ssd", "data"),))
OTHER = Volumes(attach=(("tape", 2),))


def snapshot(limit: int) -> Snapshot:
    """Two nodes that attach so many volumes of the driver ssd each."""
    made = Snapshot(factories.LEVELS)
    for name in ("a", "b"):
        made.put_node(factories.node(name))
        made.pod_counts.put_limits(name, {"ssd": limit})
    return made


def spec(volumes: Volumes, cpu: int) -> PodSpec:
    return replace(factories.pod("p", 1, cpu=cpu).spec, volumes=volumes)


@pytest.mark.parametrize(
    ("mine", "theirs", "needed"),
    [
        (DISKS, DISKS, 2 * 2 + 3 * 2),
        (DISKS, SHARED, 2 * 2 + 1),  # one volume, however many pods use it
        (SHARED, DISKS, 1 + 3 * 2),
    ],
)
def test_volumes_compete_if_a_node_cannot_attach_all(
    mine: Volumes, theirs: Volumes, needed: int
) -> None:
    """Two pods of one class and three of another, which may all come to one node."""
    groups = ((spec(mine, 1), 2), (spec(theirs, 2), 3))
    assert not pods_affect_each_other(snapshot(needed), groups)
    assert pods_affect_each_other(snapshot(needed - 1), groups)


def test_one_node_that_cannot_attach_all_is_enough() -> None:
    made = snapshot(10)
    made.pod_counts.put_limits("b", {"ssd": 9})
    assert pods_affect_each_other(made, ((spec(DISKS, 1), 2), (spec(DISKS, 2), 3)))


def test_other_drivers_and_pods_of_one_class_do_not_compete() -> None:
    assert not pods_affect_each_other(snapshot(1), ((spec(DISKS, 1), 2), (spec(OTHER, 2), 3)))
    assert not pods_affect_each_other(snapshot(1), ((spec(DISKS, 1), 5),))


def test_a_single_pod_that_is_apart_from_its_like_keeps_its_other_rules() -> None:
    """The master is in no rack with another master, and in none with a worker."""
    apart = tuple(Apart(factories.mates(app), RACK) for app in ("master", "worker"))
    master = factories.pod(
        "m-0", 1, "g", cpu=200, rules=Rules(apart=apart), labels=(("app", "master"),)
    )
    workers = [factories.pod(f"w-{i}", 1, "g", labels=(("app", "worker"),)) for i in range(2)]
    nodes = [factories.node(f"{rack}{i}", rack=rack) for rack in ("a", "b") for i in range(2)]
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*nodes, factories.gang("g", 3), master, *workers], 0.0)
    racks = {pod.seen.name: pod.node[:1] for pod in scheduler.state.pods.values()}
    assert racks == {"m-0": "a", "w-0": "b", "w-1": "b"}
