"""How long an elastic gang still runs, and that its size is left alone at the end."""

from dataclasses import replace
from math import inf

import pytest

from central.kube.decode import elastic_range
from central.kube.decode.fields import FieldError
from central.model import speed_table
from central.model.jobspec import ElasticTask
from central.model.work_left import SHARE, STEPS, TIME, WorkLeft
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.remaining_work import RemainingWork
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, priority, sizes
from tests.experiments.elastic import service, simulate, template

KEY = ("ns", "g", True)


def gang(said: WorkLeft | None, size: int, step: int = 0, started: float = 0.0) -> ElasticGang:
    task = ElasticTask("w", 1, 16, work_left=said)
    seen = [factories.pod(f"p-{number}", started=started or None) for number in range(size)]
    pods = {number: Pod(one, one.spec) for number, one in enumerate(seen)}
    whole = Gang(KEY)
    for number, pod in pods.items():
        pod.node = "n"
        whole.members[f"p-{number}"] = pod
    return ElasticGang(whole, task, frozenset(pods), placed=pods, step=step)


def test_a_time_is_that_at_the_size_when_it_was_said() -> None:
    left, said = RemainingWork(), WorkLeft(TIME, 100.0)
    left.look([gang(said, 4)], 1000.0)
    assert left.ends_in_s(gang(said, 4), 4) == 100.0
    assert left.ends_in_s(gang(said, 4), 8) == 50.0
    left.look([gang(said, 8)], 1010.0)  # 40 of 400 are done
    assert left.ends_in_s(gang(said, 8), 8) == 45.0
    left.look([gang(said, 8)], 1030.0)
    assert left.ends_in_s(gang(said, 8), 8) == 25.0
    left.look([gang(said, 8)], 2000.0)
    assert left.ends_in_s(gang(said, 8), 8) == 0.0


def test_another_value_begins_anew_and_the_same_does_not() -> None:
    left, said = RemainingWork(), WorkLeft(TIME, 100.0)
    left.look([gang(said, 4)], 1000.0)
    left.look([gang(said, 4)], 1090.0)
    assert left.ends_in_s(gang(said, 4), 4) == 10.0
    more = WorkLeft(TIME, 200.0)
    left.look([gang(more, 4)], 1090.0)
    assert left.ends_in_s(gang(more, 4), 4) == 200.0
    left.look([], 1100.0)
    assert left.ends_in_s(gang(more, 4), 4) == inf


def test_a_share_is_of_what_the_pods_have_run() -> None:
    left, said = RemainingWork(), WorkLeft(SHARE, 0.75)
    left.look([gang(said, 2, started=900.0), gang(None, 2)], 1000.0)
    assert left.ends_in_s(gang(said, 2), 2) == 300.0
    assert left.ends_in_s(gang(said, 2), 4) == 150.0
    whole = WorkLeft(SHARE, 1.0)
    left.look([gang(whole, 2, started=900.0)], 1000.0)
    assert left.ends_in_s(gang(whole, 2), 2) == inf


def test_steps_cost_what_the_reported_ones_did() -> None:
    left, said = RemainingWork(), WorkLeft(STEPS, 1000.0)
    for step, now in ((0, 1000.0), (500, 1010.0)):
        left.look([gang(said, 2, step)], now)
        assert left.ends_in_s(gang(said, 2), 2) == inf
    left.look([gang(said, 2, 600)], 1030.0)  # 100 steps in 20 s of two
    assert left.ends_in_s(gang(said, 2), 2) == pytest.approx(180.0)
    assert left.ends_in_s(gang(said, 4), 4) == pytest.approx(90.0)
    left.look([gang(said, 2, 600)], 1040.0)  # no newer report
    assert left.ends_in_s(gang(said, 2), 2) == pytest.approx(170.0)
    left.look([gang(said, 2, 550)], 1050.0)  # after a restore
    assert left.ends_in_s(gang(said, 2), 2) > 700.0
    left.look([gang(said, 2, 1600)], 1060.0)
    assert left.ends_in_s(gang(said, 2), 2) == 0.0


def test_speeds_count_where_they_are_known() -> None:
    table = speed_table.parse("1:1 2:1.5 4:2")
    said = WorkLeft(TIME, 100.0)
    two = gang(said, 2)
    two = replace(two, task=replace(two.task, speeds=table))
    left = RemainingWork()
    left.look([two], 1000.0)
    assert left.ends_in_s(two, 4) == pytest.approx(75.0)


def test_a_clock_that_goes_back_does_no_work() -> None:
    left, said = RemainingWork(), WorkLeft(TIME, 100.0)
    left.look([gang(said, 1)], 1000.0)
    left.look([gang(said, 1)], 900.0)
    assert left.ends_in_s(gang(said, 1), 1) == 100.0


def test_one_that_has_not_started_is_not_counted() -> None:
    left, said = RemainingWork(), WorkLeft(TIME, 100.0)
    left.look([replace(gang(said, 1), task=ElasticTask("w", 2, 4, work_left=said))], 1000.0)
    assert left.ends_in_s(gang(said, 1), 1) == inf


@pytest.mark.parametrize(
    ("seats", "left", "size"),
    [
        (16, "1050s", 4),  # 50 s at the present size, which are less than two costs
        (16, "1070s", 16),  # 70 s: twelve more members do 210 s of work, and the change costs 120 s
        (5, "1140s", 4),  # 140 s, or 112 s with one more member, which does that much work
        (5, "1200s", 5),  # 200 s: it does 160 s
        (16, "10h", 16),
        (5, "", 5),
    ],
)
def test_no_change_near_the_end_unless_it_pays(seats: int, left: str, size: int) -> None:
    """Four members run from the beginning, and the other seats become free after 1000 s. A change costs 30 s."""
    job = elastic("e", least=4, arguments=["--hold=1s"])
    notes = job["metadata"]["annotations"]
    notes |= {"lockstep.dev/resize-cost": "30s"}
    notes |= {"lockstep.dev/work-left": left} if left else {}
    nodes = [priority("high", 9), machine(0, seats)]
    pod = template(1.0, "1Gi")
    web = [service("web", pods, at, pod, "high") for pods, at in ((seats - 4, 0.0), (0, 1000))]
    run = simulate([*nodes, *web, job], 1500)
    assert sizes(run, "e", at_s=999.0) == [4]
    assert sizes(run, "e", at_s=1499.0) == [size]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3h", WorkLeft(TIME, 10800.0)),
        ("1h30m", WorkLeft(TIME, 5400.0)),
        ("42%", WorkLeft(SHARE, 0.42)),
        ("0.5%", WorkLeft(SHARE, 0.005)),
        ("100%", WorkLeft(SHARE, 1.0)),
        ("18000 steps", WorkLeft(STEPS, 18000.0)),
        ("1 step", WorkLeft(STEPS, 1.0)),
        ("0 steps", WorkLeft(STEPS, 0.0)),
    ],
)
def test_what_is_left_is_read(text: str, found: WorkLeft) -> None:
    assert elastic_range.work_left({"lockstep.dev/work-left": text}) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-3",
        "-3h",
        "101%",
        "-1%",
        "nan%",
        "1e3%",
        "%",
        "steps",
        "1.5 steps",
        "1 000 steps",
        "9" * 16 + " steps",
        "٣ steps",
        "3 h",
        "soon",
        "3h\n",
        "x" * 2**20,
        3,
        None,
        ["3h"],
    ],
)
def test_what_is_none_is_refused_with_one_sentence(text: object) -> None:
    with pytest.raises(FieldError) as raised:
        elastic_range.work_left({"lockstep.dev/work-left": text})
    told = str(raised.value)
    assert told.startswith("annotation lockstep.dev/work-left: ")
    assert told.endswith("a duration (3h), a share (42%) and a number of steps (18000 steps)")
    assert len(told) < 300
