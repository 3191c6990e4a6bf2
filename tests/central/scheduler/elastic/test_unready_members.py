"""When members that do not start give their seats back, to the second. The story is in test_unready.py."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from central.model.jobspec import ElasticTask, JobMember
from central.scheduler.elastic.autoscaler import Autoscaler
from central.scheduler.elastic.elastic_gang import NO_START, ElasticGang
from central.scheduler.elastic.unready import JOIN_WAIT_S, LOWERED_S, UnreadyMembers
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.elastic.test_pools import Rig, node, running

GANG = Gang(("ns", "j", True))
KEYS = {GANG.key}
TASK = ElasticTask("worker", 2, 8)


def member(number: int, uid: str = "", **more: Any) -> Pod:
    seen = factories.pod(f"j-worker-{number}", part=JobMember("j", "u", "worker", number), **more)
    return Pod(replace(seen, uid=uid or seen.uid), factories.spec())


def gang(
    size: int, stuck: Mapping[int, str], *, task: ElasticTask = TASK, **uids: str
) -> ElasticGang:
    """stuck: why members do not start; the others run."""
    pods = {
        number: member(
            number, uids.get(f"m{number}", ""), phase="Pending" if number in stuck else "Running"
        )
        for number in range(size)
    }
    return ElasticGang(GANG, task, frozenset(pods), placed=pods, unready=dict(stuck))


def late(
    members: UnreadyMembers, now: float, *stuck: int, size: int = 6, **more: Any
) -> list[int | None]:
    one = gang(size, dict.fromkeys(stuck, "ImagePullBackOff"), **more)
    return [one.number(pod) for pod in members.late(one, now)]


def fails(members: UnreadyMembers, now: float, *, size: int = 6) -> str:
    """Its last two members do not start, and leave. Returns why."""
    numbers = (size - 2, size - 1)
    one = gang(size, dict.fromkeys(numbers, "ImagePullBackOff"))
    return members.give_back(one, [one.placed[number] for number in numbers], now)


def runs(members: UnreadyMembers, size: int, now: float = 0.0) -> None:
    assert late(members, now, size=size) == []


def test_all_that_came_together_leave_at_once_when_their_time_is_over() -> None:
    members = UnreadyMembers()
    assert late(members, 100.0, 4, 5) == []
    assert late(members, 100.0 + JOIN_WAIT_S - 0.1, 4, 5) == []
    assert late(members, 100.0 + JOIN_WAIT_S, 4, 5) == [5, 4]


def test_one_that_came_later_is_waited_for_but_not_for_ever() -> None:
    """One change is better than two; but a member that comes every 20 s must not hold the others' seats."""
    members = UnreadyMembers()
    late(members, 0.0, 4)
    late(members, 20.0, 4, 5)
    assert late(members, JOIN_WAIT_S, 4, 5) == []
    assert late(members, 20.0 + JOIN_WAIT_S, 4, 5) == [5, 4]

    members = UnreadyMembers()
    late(members, 0.0, 4, size=8)
    late(members, 20.0, 4, 5, size=8)
    late(members, 40.0, 4, 5, 6, size=8)
    assert late(members, 2 * JOIN_WAIT_S - 0.1, 4, 5, 6, size=8) == []
    assert late(members, 2 * JOIN_WAIT_S, 4, 5, 6, size=8) == [5, 4], "6 came 20 s ago"


def test_the_highest_numbers_leave_where_not_all_can() -> None:
    members = UnreadyMembers()
    late(members, 0.0, 0, 1, 2, 3, size=4)
    assert late(members, JOIN_WAIT_S, 0, 1, 2, 3, size=4) == [3, 2]


def test_a_pod_made_anew_has_its_time_anew() -> None:
    members = UnreadyMembers()
    late(members, 0.0, 5, m5="first")
    assert late(members, JOIN_WAIT_S, 5, m5="second") == []
    assert late(members, 2 * JOIN_WAIT_S, 5, m5="second") == [5]


def test_a_member_that_started_meanwhile_has_its_time_anew() -> None:
    """Its image may be pulled at last, and vanish a day later."""
    members = UnreadyMembers()
    late(members, 0.0, 5)
    runs(members, 6)
    assert list(members.due()) == []
    assert late(members, JOIN_WAIT_S, 5) == []


@pytest.mark.parametrize("offset", [0.0, 7.0])
def test_it_is_looked_at_again_when_something_is_due(offset: float) -> None:
    """Nothing else happens in a cluster where all wait: nobody would look."""
    members = UnreadyMembers()
    late(members, offset, 4, 5)
    assert {*members.due()} == {offset + JOIN_WAIT_S, offset + 2 * JOIN_WAIT_S}
    members = UnreadyMembers()
    for _ in range(3):
        fails(members, offset)
    assert list(members.due()) == [offset + LOWERED_S]


def test_the_third_try_lowers_the_most() -> None:
    members = UnreadyMembers()
    assert fails(members, 0.0) == "members 4-5 do not start: ImagePullBackOff (try 1 of 3)"
    assert fails(members, 100.0).endswith("(try 2 of 3)")
    assert not members.lowered
    assert fails(members, 200.0).endswith("(try 3 of 3); no more than 4 for 10 min")
    assert members.bounded(gang(4, {})).task.most == 4
    assert fails(members, 300.0).endswith("(try 1 of 3)"), "the count begins anew"


def test_why_names_what_each_member_lacks_once() -> None:
    """Also members that leave only because whole steps do."""
    members = UnreadyMembers()
    one = gang(6, {3: "ImagePullBackOff"})
    assert members.give_back(one, [one.placed[3]], 0.0).startswith(
        "member 3 does not start: ImagePullBackOff ("
    )
    one = gang(6, {2: "ImagePullBackOff", 4: "InvalidImageName", 5: "ImagePullBackOff"})
    going = [one.placed[number] for number in (5, 4, 3, 2)]
    assert members.give_back(one, going, 0.0).startswith(
        "members 2-5 do not start: ImagePullBackOff, InvalidImageName ("
    )


def test_only_a_growth_that_succeeded_ends_the_count() -> None:
    members = UnreadyMembers()
    fails(members, 0.0)  # 4 are left
    runs(members, 4)
    assert fails(members, 0.0).endswith("(try 2 of 3)"), "no growth"
    started = gang(6, {})
    started.placed[5] = member(5, phase="Pending")
    members.late(started, 0.0)
    assert fails(members, 0.0).endswith("(try 3 of 3); no more than 4 for 10 min"), "one is pulled"
    fails(members, 0.0)
    runs(members, 5)
    assert fails(members, 0.0).endswith("(try 1 of 3)")


def test_the_size_is_allowed_again_after_a_while() -> None:
    members = UnreadyMembers()
    for _ in range(3):
        fails(members, 0.0)
    members.forget(KEYS, LOWERED_S - 0.1)
    assert members.bounded(gang(4, {})).task.most == 4
    members.forget(KEYS, LOWERED_S)
    assert members.bounded(gang(4, {})).task.most == 8
    assert list(members.due()) == []


def test_a_gang_that_is_gone_leaves_nothing_behind() -> None:
    """Its name may be another gang's tomorrow."""
    members = UnreadyMembers()
    for _ in range(3):
        fails(members, 0.0)
    fails(members, 0.0)
    late(members, 0.0, 5)
    members.forget({("ns", "k", True)}, 1.0)
    assert list(members.due()) == []
    assert not members.lowered
    assert fails(members, 0.0).endswith("(try 1 of 3)")
    assert late(members, JOIN_WAIT_S, 5) == []


def test_the_lowered_most_is_a_size_that_the_job_may_have() -> None:
    task = replace(TASK, useful=(2, 4, 5, 8))
    members = UnreadyMembers()
    for _ in range(3):
        fails(members, 0.0, size=7)  # 5 are left
    found = members.bounded(gang(5, {}, task=task)).task
    assert (found.most, found.useful) == (5, (2, 4, 5))
    raised = replace(TASK, least=6)
    assert members.bounded(gang(6, {}, task=raised)).task.most == 6, (
        "the owner raised the least size"
    )
    smaller = replace(TASK, most=5, useful=(2, 4))
    assert members.bounded(gang(5, {}, task=smaller)).task is smaller, "it has no more anyway"


# -- what the autoscaler makes of it


def stuck_from(rig: Rig, *numbers: int, least: int = 2, settled: bool = True) -> ElasticGang:
    one = rig.elastic("a", least, most=6 if least <= 6 else 8)
    why = dict.fromkeys(numbers, "ImagePullBackOff")
    numbering = {pod.seen.uid: number for number, pod in one.placed.items()}
    return replace(one, unready=why, settled=settled, numbers=numbering)


@pytest.mark.parametrize("settled", [True, False])
def test_a_change_on_its_way_is_waited_for(settled: bool) -> None:
    """What the Job controller has not written yet may be the same members already."""
    rig = Rig(node(), *running("a", 6))
    scaler = Autoscaler()
    assert scaler.decide(rig.context, [stuck_from(rig, 4, 5)], [], 100.0) == []
    assert scaler.due_at == 100.0 + JOIN_WAIT_S
    late = stuck_from(rig, 4, 5, settled=settled)
    found = scaler.decide(rig.context, [late], [], 100.0 + JOIN_WAIT_S)
    assert [(each.cause, each.members) for each in found] == (
        [(NO_START, (0, 1, 2, 3))] if settled else []
    )


def test_a_gang_that_has_not_started_is_left_alone() -> None:
    """Below the least size its pods are what any gang's are: policies are for them."""
    rig = Rig(node(), *running("a", 6))
    scaler = Autoscaler()
    for now in (100.0, 100.0 + JOIN_WAIT_S):
        assert scaler.decide(rig.context, [stuck_from(rig, 4, 5, least=7)], [], now) == []
    assert scaler.due_at is None


@pytest.mark.parametrize(
    ("phase", "why", "counts"),
    [
        ("Pending", "ImagePullBackOff", True),
        ("Running", "CreateContainerConfigError", False),  # another of its containers runs
        ("Pending", "", False),
    ],
)
def test_which_members_count(phase: str, why: str, *, counts: bool) -> None:
    """A pod that runs has started: what its containers lack later is for policies."""
    found = Gang(GANG.key)
    pods = [member(0, phase="Running"), member(1, phase=phase)]
    for pod in pods:
        pod.seen = replace(pod.seen, stuck=why if pod.seen.name.endswith("1") else "")
        pod.node, pod.charged_spec = "n", pod.spec
        found.members[pod.seen.uid] = pod
    view = ElasticGang.of(found, TASK, [0, 1], settled=True)
    assert sorted(view.placed) == [0, 1]
    assert view.unready == ({1: why} if counts else {})
