"""The health of MIG slices, survey by survey."""

from dataclasses import replace

import pytest

from agent.health.gpu_health import DeviceHealth, HoldDown, XidEvent, confined_to_slices
from agent.machine import capture
from agent.machine.survey import survey
from agent.mig import slice_health
from protos.topology import Gpu, NodeTopology
from tests.agent.nvml_fixture import CAPTURES

KNOWN = survey(capture.load(CAPTURES / "dgx-a100-mig-8.json"))
SLICED, WHOLE = KNOWN.gpus[6], KNOWN.gpus[0]
HIT = SLICED.slices[1]
HOLD_DOWN = HoldDown(hold_s=10.0)
CONTAINED, RESET, UNKNOWN = 94, 79, 4711


def look(
    known: dict[str, DeviceHealth], topology: NodeTopology, now: float, *events: XidEvent
) -> tuple[dict[str, DeviceHealth], NodeTopology]:
    return slice_health.step(known, topology, events, now=now, hold_down=HOLD_DOWN)


def unhealthy(topology: NodeTopology) -> set[str]:
    return {part.uuid for gpu in topology.gpus for part in gpu.slices if not part.healthy}


@pytest.mark.parametrize(
    ("event", "confined"),
    [
        (XidEvent(SLICED.uuid, CONTAINED, HIT.gi), True),
        (XidEvent(SLICED.uuid, CONTAINED, HIT.gi, 3), True),
        (XidEvent(SLICED.uuid, CONTAINED), False),  # the whole GPU
        (XidEvent(SLICED.uuid, CONTAINED, 99), False),  # no such instance
        (XidEvent(SLICED.uuid, RESET, HIT.gi), False),
        (XidEvent(SLICED.uuid, UNKNOWN, HIT.gi), False),
        (XidEvent(WHOLE.uuid, CONTAINED, HIT.gi), False),
        (XidEvent("", CONTAINED, HIT.gi), False),
    ],
)
def test_which_errors_stay_inside_one_instance(event: XidEvent, confined: bool) -> None:
    assert confined_to_slices(event, SLICED) == confined


@pytest.mark.parametrize(
    ("event", "hit"),
    [
        (XidEvent(SLICED.uuid, CONTAINED, HIT.gi, HIT.ci), {HIT.uuid}),
        (XidEvent(SLICED.uuid, CONTAINED, HIT.gi), {HIT.uuid}),  # all compute instances
        (XidEvent(SLICED.uuid, CONTAINED, HIT.gi, HIT.ci + 1), set()),
        (XidEvent(SLICED.uuid, RESET, HIT.gi), set()),  # a matter of the GPU
    ],
)
def test_an_error_hits_its_slice_for_one_hold_down(event: XidEvent, hit: set[str]) -> None:
    health, _ = look({}, KNOWN, 0.0)
    health, now = look(health, KNOWN, 1.0, event)
    assert unhealthy(now) == hit
    health, now = look(health, KNOWN, 10.9)
    assert unhealthy(now) == hit
    _, now = look(health, KNOWN, 11.0)
    assert unhealthy(now) == set()


def test_slices_are_unhealthy_with_their_gpu() -> None:
    broken = replace(SLICED, healthy=False, why="lost")
    gpus: tuple[Gpu, ...] = (*KNOWN.gpus[:6], broken, KNOWN.gpus[7])
    health, now = look({}, replace(KNOWN, gpus=gpus), 0.0)
    assert unhealthy(now) == {part.uuid for part in SLICED.slices}
    assert {part.why for part in now.gpus[6].slices} == {"lost"}
    _, now = look(health, KNOWN, 1.0)
    assert unhealthy(now) == set()


def test_each_change_of_a_slice_is_logged_once() -> None:
    health, before = look({}, KNOWN, 0.0)
    _, hit = look(health, KNOWN, 1.0, XidEvent(SLICED.uuid, CONTAINED, HIT.gi))
    name = f"GPU 6's {HIT.profile} (gi {HIT.gi}, ci {HIT.ci})"
    (message,) = slice_health.changes(before, hit)
    assert message.startswith(f"{name} is unhealthy: XID 94")
    assert slice_health.changes(hit, hit) == ()
    assert slice_health.changes(hit, before) == (f"{name} is healthy again",)
    assert slice_health.changes(before, before) == ()
    broken = replace(hit.gpus[6], healthy=False)
    gone = replace(hit, gpus=(*hit.gpus[:6], broken, hit.gpus[7]))
    assert slice_health.changes(before, gone) == ()  # the GPU's own message says it
    fresh = replace(before, gpus=before.gpus[:6])
    assert slice_health.changes(fresh, hit) == ()


def test_another_division_of_a_gpu_is_logged() -> None:
    whole = replace(SLICED, mig=False, slices=())
    empty = replace(SLICED, slices=())

    def layout(gpu: Gpu) -> NodeTopology:
        return replace(KNOWN, gpus=(*KNOWN.gpus[:6], gpu, KNOWN.gpus[7]))

    said = f"GPU 6 ({SLICED.uuid}) is"
    assert slice_health.layout_changes(KNOWN, KNOWN) == ()
    assert slice_health.layout_changes(KNOWN, layout(whole)) == (f"{said} whole",)
    assert slice_health.layout_changes(KNOWN, layout(empty)) == (
        f"{said} in MIG mode without slices",
    )
    (made,) = slice_health.layout_changes(layout(whole), KNOWN)
    assert made == f"{said} in MIG slices: 3g.20gb, 2g.10gb, 1g.5gb, 1g.5gb"
    fewer = replace(KNOWN, gpus=KNOWN.gpus[:6])
    assert len(slice_health.layout_changes(fewer, KNOWN)) == 2
