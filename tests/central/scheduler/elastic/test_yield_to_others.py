"""Surplus leaves for pending pods of other schedulers, and the room is kept for them for a while.

The other scheduler is the test: it binds a pod to a node where it fits.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from central.model.decisions import Bind
from central.model.facts import PodGone, PodSeen
from central.scheduler import cycle
from central.scheduler.elastic.other_needs import AGAIN_S, MOST, OtherNeeds
from central.scheduler.reservation.reserved_for_others import KEPT_S
from tests.central import factories
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic
from tests.central.factories import spec
from tests.effort import examples


class Shared(Api):
    """Nodes of eight CPUs, or of other sizes, that another scheduler uses as well."""

    def __init__(self, nodes: int = 1, cpu: int = 64_000) -> None:
        super().__init__(nodes=nodes, cpu=cpu)
        self.others: dict[str, PodSeen] = {}

    def pend(self, name: str, cpu: int = 8000, priority: int = 9, **other: Any) -> PodSeen:
        """A pod for which its scheduler has found no node."""
        fields: dict[str, Any] = {"ours": False, "yielded_to": True, "created": self.now, **other}
        namespace = fields.pop("namespace", "ns")
        seen = factories.pod(name, cpu=cpu, priority=priority, **fields)
        seen = replace(seen, namespace=namespace)
        self.others[name] = seen
        self.tell(seen)
        return seen

    def pass_(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step()

    def bind(self) -> list[str]:
        """As many pods as fit, the most urgent and oldest first."""
        bound = []
        pending = [seen for seen in self.others.values() if not seen.node]
        for seen in sorted(pending, key=lambda one: (-one.priority, one.created)):
            node = next((n for n in self.cluster.state.nodes if self.fits(seen, n)), "")
            if node:
                self.others[seen.name] = replace(seen, node=node, yielded_to=False, phase="Running")
                self.tell(self.others[seen.name])
                self.step(0.1)
                bound.append(seen.name)
        return bound

    def fits(self, seen: PodSeen, node: str) -> bool:
        columns = self.cluster.state.snapshot.columns
        view = self.cluster.state.snapshot.view(seen.spec)
        free = columns.free[columns.row[node], view.columns]
        return bool((free >= view.amounts).all())

    def remove(self, name: str) -> None:
        self.tell(PodGone(self.others.pop(name).uid))

    def size(self, name: str = "j") -> int:
        return int(self.status(name)["elastic"]["worker"]["size"])

    def reason(self, name: str = "j") -> str:
        return str(self.status(name)["elastic"]["worker"]["reason"])

    def rooms(self) -> list[tuple[int, int]]:
        """Pods that are waited for, and CPUs that are kept for them."""
        held = self.cluster.reservations.values()
        cpu = self.cluster.state.snapshot.columns.column["cpu"]
        return [(one.request.groups[0][1], int(one.withheld[:, cpu].sum()) // 1000) for one in held]


def full(least: int = 2, **more: Any) -> Shared:
    """An elastic Job on all eight seats of the only node."""
    api = Shared()
    api.apply(elastic(least=least, **more))
    api.settle()
    assert api.size() == 8
    return api


def test_surplus_leaves_for_all_of_them_at_once() -> None:
    api = full()
    for number in range(3):
        api.pend(f"web-{number}")
    api.step()
    api.settle()
    assert api.size() == 5
    assert api.reason() == "room for pod web-0 of another scheduler"
    assert api.events()[-1]["reason"] == "Shrank"
    assert api.rooms() == [(3, 24)]
    assert sorted(api.bind()) == ["web-0", "web-1", "web-2"]
    assert api.rooms() == []


@pytest.mark.parametrize("priority", [0, -1])
def test_not_for_pods_of_no_higher_priority(priority: int) -> None:
    api = full()
    api.pend("web-0", priority=priority)
    api.wait(60.0)
    assert (api.size(), api.rooms()) == (8, [])


def test_not_for_pods_that_are_not_yielded_to() -> None:
    """As the decoder says without --yield-to-others."""
    api = full()
    api.pend("web-0", yielded_to=False)
    api.wait(60.0)
    assert api.size() == 8


def test_never_below_the_least_size() -> None:
    """Those that fit are served; the others wait in vain."""
    api = full(least=6)
    for number in range(4):
        api.pend(f"web-{number}")
    api.wait(20.0)
    assert api.size() == 6
    assert len(api.bind()) == 2
    api.wait(100.0)
    assert api.size() == 6


def test_nobody_leaves_if_that_does_not_help() -> None:
    for wrong in ({"cpu": 80_000}, {"spec": spec(0, 8000, node_selector=(("zone", "z9"),))}):
        api = full()
        api.pend("web-0", **wrong)
        api.wait(60.0)
        assert (api.size(), api.rooms()) == (8, [])


def test_nobody_leaves_for_a_pod_that_fits() -> None:
    api = Shared()
    api.apply(elastic(most=4))
    api.settle()
    api.pend("web-0")
    api.wait(60.0)
    assert (api.size(), api.rooms()) == (4, [])


def test_a_job_that_does_not_yield() -> None:
    raw = elastic()
    raw["metadata"]["annotations"]["lockstep.dev/yields"] = "false"
    api = Shared()
    api.apply(raw)
    api.settle()
    api.pend("web-0")
    api.wait(60.0)
    assert api.size() == 8


def test_the_room_is_kept_until_it_is_used() -> None:
    """Neither the job itself nor another one of no higher priority takes it."""
    api = full()
    for number in range(2):
        api.pend(f"web-{number}")
    api.step()
    api.settle()
    api.apply(elastic(name="k", least=8, most=8))
    api.pass_(20)
    assert (api.size(), api.rooms()) == (6, [(2, 16)])
    api.others["web-1"] = replace(api.others["web-1"], node="n0", yielded_to=False)
    api.tell(api.others["web-1"])
    api.step()
    assert api.rooms() == [(1, 8)], "the place of the other one is still kept"
    assert api.bind() == ["web-0"]


@pytest.mark.parametrize(("priority", "takes"), [(0, False), (9, False), (10, True)])
def test_a_gang_of_no_higher_priority_leaves_the_room_free(priority: int, *, takes: bool) -> None:
    api = full(least=7)
    api.pend("web-0")
    api.pass_(10)
    assert api.rooms() == [(1, 8)]
    api.tell(factories.pod("own-0", cpu=8000, priority=priority))
    decisions = api.step()
    bound = [each.pod for each in decisions if isinstance(each, Bind)]
    assert bound == (["uid-own-0"] if takes else [])


def test_no_more_is_kept_than_those_who_wait_need() -> None:
    api = full()
    for number in range(3):
        api.pend(f"web-{number}")
    api.pass_(10)
    assert api.rooms() == [(3, 24)]
    api.remove("web-0")
    api.step()
    assert api.rooms() == [(2, 16)]


def test_it_says_for_whom_and_how_long() -> None:
    api = full()
    api.grace_steps = 5
    for number in range(2):
        api.pend(f"web-{number}")
    api.pass_(3)
    (held,) = api.cluster.reservations.values()
    whom = "kept: node n0, for 2 pods of another scheduler"
    assert held.describe(api.now) == f"{whom}; waiting for members of elastic Jobs to leave"
    while held.describe(api.now) != f"{whom}, for 30 s":
        api.step()
    api.remove("web-0")
    api.pass_(4)
    assert held.describe(api.now) == "kept: node n0, for 1 pod of another scheduler, for 26 s"


@pytest.mark.long
def test_room_that_is_not_used_goes_back_and_is_not_made_again_soon() -> None:
    """Its scheduler may have reasons of its own. One of the same kind, made anew, has the same."""
    api = full()
    api.pend("web-0")
    api.step()
    api.settle()
    assert api.size() == 7
    api.pass_(int(KEPT_S))
    assert api.rooms() == []
    ended = api.now
    api.pass_(120)
    assert api.size() == 8
    api.remove("web-0")
    api.pend("web-1")
    api.pass_(int(ended + AGAIN_S - api.now) - 30)
    assert api.size() == 8
    api.pass_(35)
    assert api.size() == 7
    assert api.bind() == ["web-1"]


def test_the_time_begins_when_those_who_leave_have_left() -> None:
    api = full()
    api.grace_steps = 40
    api.pend("web-0")
    while len(api.pods()) == 8:
        api.step()
    api.pass_(40)
    assert len(api.rooms()) == 1
    api.pass_(int(KEPT_S) - 5)
    assert api.rooms() == [(1, 8)]
    api.pass_(10)
    assert api.rooms() == []


def test_the_room_ends_with_the_pods_that_wait_for_it() -> None:
    api = full()
    api.pend("web-0")
    api.step()
    api.settle()
    assert api.rooms() == [(1, 8)]
    api.remove("web-0")
    api.step()
    assert api.rooms() == []
    api.pass_(120)
    assert api.size() == 8
    api.pend("web-1")
    api.pass_(10)
    assert api.rooms() == [(1, 8)], "a pod that went away left nothing unused"


def test_needs_of_our_own_go_first() -> None:
    """Of one turn, with a seat for one of both."""
    api = full(least=7)
    api.pend("web-0")
    api.tell(factories.pod("own-0", cpu=8000))
    api.step()
    api.step()
    assert (api.size(), api.reason()) == (7, "room for own-0")
    assert api.rooms() == []


def test_the_most_urgent_and_then_the_oldest_get_the_last_seat() -> None:
    for others in (("new", 9, 2.0), ("urgent", 10, 5.0)):
        api = full(least=7)
        for name, priority, after_s in (("old", 9, 1.0), others):
            api.pend(name, priority=priority, created=api.now + after_s)
        api.pend("low", priority=8)
        api.step()
        api.step()
        first = "urgent" if others[1] > 9 else "old"
        assert api.reason() == f"room for pod {first} of another scheduler"
        assert [pods for pods, _ in api.rooms()] == [1]


def test_the_next_cycle_is_due_when_the_room_ends() -> None:
    api = full()
    api.pend("web-0")
    api.pass_(10)
    (held,) = api.cluster.reservations.values()
    assert held.moved is not None
    assert api.cluster.elastic.others.due() == [held.moved.until]
    due = cycle.due(api.cluster, api.now)
    assert due is not None
    assert due <= held.moved.until
    api.pass_(30)
    (again,) = api.cluster.elastic.others.due()
    assert AGAIN_S - 30 < again - api.now <= AGAIN_S
    assert again in api.cluster.elastic.due()


def test_pods_of_several_namespaces_share_one_turn() -> None:
    api = full()
    for number in range(3):
        api.pend(f"web-{number}", namespace=f"team-{number}")
    api.step()
    assert [pods for pods, _ in api.rooms()] == [3]
    api.settle()
    assert api.reason() == "room for pod team-0/web-0 of another scheduler"


@pytest.mark.long
def test_more_pods_than_one_turn_looks_at() -> None:
    api = full()
    for number in range(MOST + 50):
        api.pend(f"large-{number}", cpu=80_000 + number, priority=7)
    api.pend("web-0", priority=5)
    api.step()
    assert api.size() == 8
    api.pass_(3)
    assert api.size() == 7, "those in vain do not stand in the way for ever"


class Day(Shared):
    def __init__(self, seed: int) -> None:
        super().__init__(nodes=3)
        self.random = random.Random(seed)
        self.least = {"a": self.random.randint(1, 4), "b": self.random.randint(1, 8)}
        for name, least in self.least.items():
            self.apply(elastic(name=name, least=least, most=16))
        self.settle()
        self.shrunk_for: set[str] = set()

    def event(self) -> None:
        kind = self.random.random()
        free = [name for name, seen in self.others.items() if seen.node]
        if kind < 0.5:
            name = f"o{len(self.shrunk_for)}-{self.random.randrange(10**6)}"
            self.pend(
                name, self.random.choice((4000, 8000, 16000)), self.random.choice((-3, 0, 3, 9))
            )
        elif kind < 0.7 and free:
            self.remove(self.random.choice(free))
        elif kind < 0.8 and self.others:
            self.remove(self.random.choice(sorted(self.others)))
        self.step(self.random.choice((0.5, 2.0, 10.0)))
        if self.random.random() < 0.8:
            self.bind()

    def could_fit(self, seen: PodSeen) -> bool:
        """Whether surplus of one node suffices."""
        columns = self.cluster.state.snapshot.columns
        free = columns.free[:, columns.column["cpu"]]
        for node in self.cluster.state.nodes:
            most = int(free[columns.row[node]])
            for job, least in self.least.items():
                there = sum(
                    name.startswith(f"{job}-")
                    and self.there["Pod", name]["spec"].get("nodeName") == node
                    for name in self.pods()
                )
                most += 8000 * min(self.size(job) - least, there)
            if most >= seen.spec.request("cpu"):
                return True
        return False

    def check(self) -> None:
        for name, least in self.least.items():
            assert self.size(name) >= least
        for pod in self.cluster.state.others_pending().values():
            assert not pod.node
        for held in self.cluster.reservations.values():
            assert held.gang.priority > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(20)))
def test_days_with_another_scheduler(seed: int) -> None:
    """Nobody falls below its least size, only the more urgent are yielded to, and in the end all of those that surplus
    suffices for have a node. Invariants are checked after every step."""
    day = Day(seed)
    for _ in range(60):
        day.event()
        day.check()
    for _ in range(200):
        day.step(10.0)
        day.bind()
        day.check()
    for seen in day.others.values():
        if not seen.node and seen.priority > 0:
            assert not day.could_fit(seen), f"{seen.name} waits in vain"


def test_a_turn_is_for_so_many_of_the_most_urgent() -> None:
    api = Shared()
    for number in range(MOST + 3):
        api.pend(f"web-{number}", priority=1 + (number >= 3))
    api.step()
    state = api.cluster.state
    assert len(state.others_pending()) == MOST + 3
    found = OtherNeeds().needs(state, object(), api.now)
    names = {pod.seen.name for need in found for pod in need.gang.members.values()}
    assert names == {f"web-{number}" for number in range(3, MOST + 3)}
