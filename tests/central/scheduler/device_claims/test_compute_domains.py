"""Gangs of ComputeDomains of NVIDIA's DRA driver: each pod has the only channel of its node."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, UpdateGangStatus
from central.model.device_claims import Device, DeviceAttribute, DeviceRequest, SliceSeen
from central.model.facts import DeviceClassSeen, Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.placement_attempts import required_level
from protos.names import CLIQUE, CLIQUES, COMPUTE_DOMAIN, RACK
from tests.central import factories
from tests.central.scheduler.device_claims.devices import gang, spec
from tests.central.scheduler.invariants import check_invariants

DRIVER = "compute-domain.nvidia.com"
READ = f"device.attributes['{DRIVER}']"
# The selector of the driver's Helm chart.
CHANNEL = DeviceClassSeen(
    COMPUTE_DOMAIN,
    "",
    (f"device.driver == '{DRIVER}' && {READ}.type == 'channel' && {READ}.id == 0",),
)
ASKED = spec((DeviceRequest("channel", COMPUTE_DOMAIN, 1),))
NODES = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "y"}  # with their cliques


def published(node: str) -> SliceSeen:
    made = [
        Device(
            f"{kind}-0",
            (
                DeviceAttribute(f"{DRIVER}/id", "int", 0),
                DeviceAttribute(f"{DRIVER}/type", "string", kind),
            ),
        )
        for kind in ("channel", "daemon")
    ]
    return SliceSeen(f"s-{node}", DRIVER, node, 1, 1, node, tuple(made))


def placed(size: int, level: str = CLIQUE, required: str = "") -> tuple[dict[str, str], str]:
    """Returns the nodes of the gang's pods, and its reason."""
    levels = (*factories.LEVELS, *(level,) * bool(level))
    scheduler = new_scheduler(levels)
    labels = {name: {level: clique} if level else {} for name, clique in NODES.items()}
    facts: list[Fact] = [CHANNEL]
    for name in NODES:
        facts += [factories.node(name, gpus=0, rack="r0", labels=labels[name]), published(name)]
    decisions = schedule_once(
        scheduler, [*facts, *gang(size, ASKED, topology_required=required)], 1.0
    )
    check_invariants(scheduler)
    nodes = {each.name: each.node for each in decisions if isinstance(each, Bind)}
    return nodes, next(each.reason for each in decisions if isinstance(each, UpdateGangStatus))


@pytest.mark.parametrize("level", CLIQUES)
def test_its_pods_share_an_nvlink_clique(level: str) -> None:
    nodes, _ = placed(3, level)
    assert sorted(nodes.values()) == ["c", "d", "e"], "one pod on each node"


def test_it_waits_for_a_clique_that_is_large_enough() -> None:
    nodes, reason = placed(4)
    assert not nodes
    assert "in one clique" in reason


def test_a_level_that_it_requires_takes_precedence() -> None:
    nodes, _ = placed(4, required=RACK)
    assert len(nodes) == 4


def test_without_cliques_as_a_level_it_may_span_them() -> None:
    nodes, _ = placed(4, level="")
    assert len(nodes) == 4


def test_members_that_come_later_join_the_clique_of_those_that_run() -> None:
    """Also while the scheduler only asks where more would fit, and none is pending."""
    scheduler = new_scheduler((*factories.LEVELS, CLIQUE))
    facts: list[Fact] = [CHANNEL]
    for name, clique in NODES.items():
        labels = {CLIQUE: clique}
        facts += [factories.node(name, gpus=0, rack="r0", labels=labels), published(name)]
    schedule_once(scheduler, [*facts, *gang(2, ASKED)], 1.0)
    (running,) = scheduler.state.gangs.values()
    assert not running.counts.waiting
    assert required_level(scheduler.state, running) == CLIQUE
