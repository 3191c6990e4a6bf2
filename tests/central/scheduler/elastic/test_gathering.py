"""Elastic Jobs that come onto one node, where they are faster. Their speed shows in when their work is done."""

import pytest

from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, queue, rigid, sizes
from tests.experiments.elastic import Json, Run, simulate

SPEED = "1:1 2/1:2 2/2:1.1 3/1:3 3/2:1.2 4/1:4 4/2:1.3"  # one node is three times as fast as two
WORK_S = 3000.0
NODES = (machine(0, 4), machine(1, 4))


def fast(at_s: float, speed: str = SPEED, **notes: str) -> Json:
    """Useful with up to four members."""
    given = {
        "lockstep.dev/speed": speed,
        "lockstep.dev/work": f"{WORK_S:g}s",
        **{f"lockstep.dev/{key.replace('_', '-')}": value for key, value in notes.items()},
    }
    return elastic("x", 1, 8, at_s, annotations=given, arguments=["--hold=60s"])


def other(**spec: object) -> Json:
    """On the first node from 0 s on, with up to four members; the rest of the second node is somebody's who stays."""
    return elastic("y", 1, 4, 0.0, **spec)


def done_at(run: Run) -> float:
    [end] = [one.at_s for one in run.result.ended if one.name == "x" and one.kind == "Job"]
    return end


def test_it_comes_onto_one_node_when_seats_are_free_there() -> None:
    """Rigid jobs leave it one seat on each node; one of them ends at 100 s."""
    ends = rigid("a", 3, 0.0)
    ends["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["lockstep.dev/runs-for"] = "98s"
    run = simulate([*NODES, ends, rigid("b", 3, 1.0), fast(10.0)], 4000)
    assert sizes(run, "x", at_s=99) == [2]
    first, *_, last = [one for one in run.result.resized if one.name == "x" and one.at_s >= 100]
    assert (first.members, first.reason, last.members) == (2, "faster on one node", 4)
    assert done_at(run) < 200 + WORK_S / 4


def test_others_make_room_for_it_and_grow_again_elsewhere() -> None:
    run = simulate([*NODES, other(), rigid("r", 2, 5.0), fast(10.0)], 4000)
    assert done_at(run) < 200 + WORK_S / 3
    assert sizes(run, "x", "y", at_s=500) == [3, 3]
    assert not run.result.evicted


@pytest.mark.parametrize(
    "spec", [{"annotations": {"lockstep.dev/yields": "false"}}, {"queue": "b"}]
)
def test_nobody_makes_room_who_need_not(spec: Json) -> None:
    run = simulate([*NODES, queue("b"), other(**spec), rigid("r", 2, 5.0), fast(10.0)], 4000)
    assert done_at(run) > 1.5 * WORK_S / 3


def test_it_stays_where_it_is_if_a_change_does_not_pay() -> None:
    nearly = "1:1 2:2 3/1:3 3/2:2.9"
    run = simulate(
        [*NODES, other(), rigid("r", 2, 5.0), fast(10.0, nearly, resize_cost="40s")], 4000
    )
    changes = [one for one in run.result.resized if one.name == "x" and 20 < one.at_s < 1000]
    assert not changes
