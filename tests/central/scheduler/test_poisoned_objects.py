"""Whatever function of the scheduler fails on one object: everybody else is scheduled in the same cycle, and the object
is set aside. The table is of all functions that a cycle calls with the object, so it has those that somebody adds."""

import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType

import pytest

from central.model.facts import GangSeen, NodeSeen, PodSeen, QueueSeen
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.quarantine import CYCLE, Quarantine, SetAsideKey
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.state.gangs import Gang
from tests.central.scheduler.whole_cycle import WholeCycle

# What contains a failure may not fail itself.
CONTAINMENT = (
    *("containment.py", "rebuild.py", "quarantine.py"),
    *("invariants.py", "status/gang_status.py"),
    # A node that a filter fails on is left out by design, which the invariants' recount does not do.
    *("filters/node_filters.py", "filters/gpu_model.py", "filters/filter_cache.py"),
)
PARTS = 16  # of the functions, another one each day; all with LOCKSTEP_SEED=all
Function = tuple[str, str]  # file, name


def is_of_gang(value: object, name: str) -> bool:
    if isinstance(value, Pod | Reservation):
        value = getattr(value, "seen", None) or getattr(value, "gang", None)
    if isinstance(value, Gang):
        return getattr(value, "key", None) == ("ns", name, True)
    if isinstance(value, GangSeen):
        return value.name == name
    return isinstance(value, PodSeen) and value.gang == name


def is_of_queue(value: object, name: str) -> bool:
    seen = getattr(value, "seen", None) if isinstance(value, Queue) else value
    return isinstance(seen, QueueSeen) and seen.name == name


def is_of_node(value: object, name: str) -> bool:
    return isinstance(value, ClusterNode | NodeSeen) and getattr(value, "name", "") == name


class Watched:
    """Sees all functions of the scheduler that get the object as an argument, and lets one of them raise."""

    def __init__(self, concerns: Callable[[object], bool], broken: Function | None = None) -> None:
        self._concerns, self._broken = concerns, broken
        self._functions: dict[CodeType, Function | None] = {}
        self.seen: dict[Function, None] = {}
        self.raised = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code not in self._functions:
            self._functions[code] = self._function(code)
        function = self._functions[code]
        if function is None or not self._gets_it(frame) or _is_contained(frame):
            return
        self.seen.setdefault(function)
        if self._broken is not None:
            self.raised += 1
            raise ZeroDivisionError(f"a bug of {code.co_name}")

    def _function(self, code: CodeType) -> Function | None:
        """None: it is not watched."""
        file = code.co_filename.rpartition("/central/scheduler/")[2]
        inside = "/central/scheduler/" in code.co_filename and file not in CONTAINMENT
        function = file, code.co_name
        if not inside or code.co_name.startswith("<"):
            return None
        return function if self._broken in (None, function) else None

    def _gets_it(self, frame: FrameType) -> bool:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return any(self._concerns(frame.f_locals.get(name)) for name in names)


class Armed(Quarantine):
    """A function that raises is no longer watched by the interpreter, so each failure arms the watch again."""

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched
        self.compared = False  # a gang with a reservation, when it was raised

    def note(
        self,
        key: SetAsideKey,
        display: tuple[str, str],
        error: BaseException,
        *,
        fresh: bool = True,
    ) -> None:
        super().note(key, display, error, fresh=fresh)
        self.compared |= "binding_reservations.py" in "".join(
            traceback.format_tb(error.__traceback__)
        )
        sys.settrace(self._watched)


def _is_contained(frame: FrameType) -> bool:
    """Whether the state is built again: another failure at that moment is not what the containment is for."""
    up: FrameType | None = frame
    while up is not None:
        if up.f_code.co_filename.endswith(("rebuild.py", "invariants.py")):
            return True
        up = up.f_back
    return False


def live(watched: Watched, seconds: int, world: WholeCycle) -> list[bool]:
    """The cluster under watch from its beginning, then with a probe in each cycle. Whether each was bound at once."""

    def bound(name: str) -> bool:
        return {f"{name}-0", f"{name}-1"} <= world.cycle(*world.probe(name))

    sys.settrace(watched)
    try:
        world.begin()
        return [bound(f"probe-{number}") for number in range(seconds)]
    finally:
        sys.settrace(None)


def functions(concerns: Callable[[object], bool]) -> list[Function]:
    watched = Watched(concerns)
    live(watched, 2, WholeCycle(Armed(watched)))
    return sorted(watched.seen)


OBJECTS = {
    "pending gang": partial(is_of_gang, name="equal"),
    "running gang": partial(is_of_gang, name="low"),
    "elastic gang": partial(is_of_gang, name="elastic"),
    "gang of another queue": partial(is_of_gang, name="more-2"),
    "queue": partial(is_of_queue, name="other"),
    "node": partial(is_of_node, name="b"),
}


# Whatever one of these raises is about its gang.
DECIDES = {"_attempt", "account", "_recompute", "_say", "undo_partial", "check", "status_update"}


def is_of_decision(error: ZeroDivisionError) -> bool:
    """Whether it was raised while one gang was decided."""
    at, names = error.__traceback__, set[str]()
    while at is not None:
        names.add(at.tb_frame.f_code.co_name)
        at = at.tb_next
    return bool(names & DECIDES)


@pytest.mark.parametrize("seed", range(PARTS))
@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.long
def test_a_function_that_fails_on_one_object_stops_that_object_or_the_process(
    kind: str, seed: int
) -> None:
    """It stops the process only where no single gang is decided: the state was built again, and it failed again."""
    found = functions(OBJECTS[kind])
    assert len(found) > 10
    failed = 0
    parts = min(PARTS, len(found) // 6)
    for function in found[seed % parts :: parts]:
        watched = Watched(OBJECTS[kind], function)
        quarantine = Armed(watched)
        world, ended = WholeCycle(quarantine), None
        try:
            bound = live(watched, 2, world)
        except ZeroDivisionError as error:
            ended = error
        total = world.scheduler.quarantine.total
        if ended is not None:
            assert not is_of_decision(ended), f"{function} is about one gang"
            assert total[CYCLE] > 1, "it failed once"
            continue
        if quarantine.compared:
            continue  # docs/design/containment.md, Limits
        assert bound == [True, True], f"{function}: {total}"
        failed += total.total()
    assert failed, "none of them was contained"


@pytest.mark.long
def test_gangs_that_fail_in_their_own_turns_are_set_aside_and_nothing_else_is() -> None:
    """Their pods and PodGroups stay in the state, with the reason."""

    def either(value: object) -> bool:
        return is_of_gang(value, "equal") or is_of_gang(value, "equally")

    watched = Watched(either, ("gang_attempt.py", "schedule"))
    world = WholeCycle(Armed(watched))
    assert all(live(watched, 3, world))
    assert {key.kind for key in world.scheduler.quarantine.set_asides} == {"gang"}
    for name in ("equal", "equally"):
        gang = world.scheduler.state.gangs["ns", name, True]
        assert len(gang.members) == 2
        assert "a bug of schedule" in gang.attempt.reason


@pytest.mark.long
def test_a_gang_that_cannot_be_accounted_is_set_aside() -> None:
    watched = Watched(OBJECTS["pending gang"], ("queues/order.py", "rank"))
    world = WholeCycle(Armed(watched))
    assert all(live(watched, 3, world))
    assert watched.raised
    aside = world.scheduler.quarantine.set_asides
    assert {key.identity for key in aside} == {("ns", "equal", True)}
