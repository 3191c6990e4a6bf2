"""Elastic Jobs that train to the end of their work."""

from typing import Any

import pytest

from central.simulator.documents import BadInput
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, rigid, sizes
from tests.experiments.elastic import Json, Run, simulate

SPEEDS = "1:1 2:2 4:3 8:4"


def training(name: str, work: str = "1000s", speed: str = SPEEDS, **spec: Any) -> Json:
    notes = {"lockstep.dev/work": work, "lockstep.dev/speed": speed}
    job = elastic(name, annotations={**notes, **spec.pop("annotations", {})}, **spec)
    job["spec"]["tasks"][0]["template"]["metadata"]["annotations"] = {}
    return job


def ended(run: Run, name: str) -> float:
    return next(end.at_s for end in run.result.ended if (end.name, end.kind) == (name, "Job"))


def test_a_job_of_one_size_takes_its_work_by_its_speed_after_the_start() -> None:
    run = simulate([machine(0), training("e", least=4, most=4)], 10_000)
    assert ended(run, "e") == pytest.approx(1 + 1000 / 3)


def test_each_change_stops_it_and_its_speed_follows_its_size() -> None:
    """Eight members, four from 100 s on, when another takes as many; a change costs a second."""
    run = simulate([machine(0), training("e", least=2, most=8), rigid("r", 4, 100)], 10_000)
    assert sizes(run, "e", at_s=101) == [4]
    assert ended(run, "e") == pytest.approx(101 + (1000 - 99 * 4) / 3)


def test_members_on_two_nodes_are_as_slow_as_the_table_says() -> None:
    slow = training("e", speed="1:1 4:4 4/2:2", least=4, most=4)
    run = simulate([machine(0, 2), machine(1, 2), slow], 10_000)
    assert ended(run, "e") == pytest.approx(1 + 1000 / 2)


def with_gpus(model: str) -> Json:
    node = machine(0)
    node["metadata"]["labels"]["nvidia.com/gpu.product"] = model
    return node


def test_it_is_as_fast_as_the_table_of_its_gpus_says() -> None:
    fast = training("e", speed="1:1 4:3 A100=1:2 A100=4:5", least=4, most=4)
    for model, rate in (("NVIDIA-A100-SXM4-80GB", 5), ("Tesla-T4", 3)):
        for allocatable in ({}, {"nvidia.com/gpu": "8"}):  # known by the label alone
            node = with_gpus(model)
            node["status"]["allocatable"] |= allocatable
            run = simulate([node, fast], 10_000)
            assert ended(run, "e") == pytest.approx(1 + 1000 / rate)


def test_sizes_that_are_not_faster_on_its_gpus_are_left_to_others() -> None:
    """On A100 it is as fast with two members as with more. Elsewhere eight are its most useful, of sixteen of the
    other."""
    job = training("e", speed="1:1 8:8 A100=1:4 A100=2:8")
    for model, found in (("A100", [2, 6]), ("Tesla-T4", [4, 4])):
        run = simulate([with_gpus(model), job, elastic("f")], 100)
        assert sizes(run, "e", "f") == found


def test_sizes_that_are_not_faster_are_left_to_others() -> None:
    """The first is as fast with two members as with more."""
    story = [machine(0), training("e", speed="1:1 2:2"), elastic("f")]
    assert sizes(simulate(story, 100), "e", "f") == [2, 6]


def test_growth_onto_another_node_must_make_it_faster() -> None:
    """Where two members would be slower than one."""
    story = [machine(0, 1), machine(1, 1), training("e", speed="1:1 2/1:2 2/2:0.5")]
    assert sizes(simulate(story, 100), "e") == [1]
    story[-1] = training("e", speed="1:1 2/1:2 2/2:1.5")
    assert sizes(simulate(story, 100), "e") == [2]


def test_who_starts_gets_its_share_of_those_who_shrink_for_it() -> None:
    """The first may not change again for 20 times its cost; it shrinks once, and to its share."""
    costly = {"lockstep.dev/resize-cost": "30s"}
    story = [
        machine(0),
        elastic("e", most=8, annotations=costly, arguments=[]),
        elastic("f", most=8, at_s=100, annotations=costly, arguments=[]),
    ]
    run = simulate(story, 120)
    assert sizes(run, "e", "f") == [4, 4]
    assert [each.members for each in run.result.resized if each.name == "e"] == [1, 8, 4]


def test_seats_follow_speeds_that_nobody_declared() -> None:
    """Two are measured with two sizes, because a third comes; the first is hardly faster with more members."""
    goodput = ["--objective=goodput", "--hold=10s"]
    slow = training("e", "9000s", "1:1 16:1.1", arguments=goodput)
    fast = training("f", "9000s", "1:1 16:16", arguments=goodput)
    story = [machine(0, 16), slow, fast, rigid("r", 4, 100)]
    run = simulate(story, 400, measured=True)
    assert sizes(run, "e", "f", at_s=90) == [8, 8], "nothing is known yet"
    few, many = sizes(run, "e", "f", at_s=300)
    assert few + many == 12
    assert few <= 4


def test_work_that_is_no_time_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"annotations\.lockstep\.dev/work"):
        simulate([machine(0), training("e", work="soon")], 10)


def test_a_job_with_speeds_that_cannot_be_read_says_so() -> None:
    run = simulate([machine(0), training("e", speed="1:1 2:x")], 10)
    assert not run.result.placed
    assert [one.reason for one in run.result.waiting if "lockstep.dev/speed" in one.reason]


def test_work_needs_speeds() -> None:
    job = elastic("e", annotations={"lockstep.dev/work": "1h"})
    with pytest.raises(BadInput, match=r"lockstep\.dev/speed: missing"):
        simulate([machine(0), job], 10)
