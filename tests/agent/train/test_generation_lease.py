"""How long a process counts on its generation, on a clock of the test."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.train.client import CoordinatorClient
from agent.train.generation_lease import SPAN_S, GenerationLease
from tests.effort import examples


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def leased() -> tuple[Clock, CoordinatorClient, GenerationLease]:
    clock = Clock()
    client = CoordinatorClient("http://127.0.0.1:1")
    client.answered_at = 0.0
    return clock, client, GenerationLease(client, clock)


def test_either_sign_of_life_is_enough() -> None:
    clock, client, lease = leased()
    lease.begin()
    clock.now = 29.9
    assert not lease.expired()
    clock.now = 30.0
    assert lease.expired()
    client.answered_at = 1.0
    assert not lease.expired()
    client.answered_at = 0.0
    lease.worked()
    clock.now = 59.9
    assert not lease.expired()
    clock.now = 60.0
    assert lease.expired()


def test_steps_may_take_three_times_as_long_as_before() -> None:
    clock, _, lease = leased()
    lease.begin()
    for clock.now in (100.0, 120.0, 140.0):  # the first one, which compiles, is no measure
        lease.worked()
    clock.now = 140.0 + 59.0
    assert not lease.expired()
    clock.now = 140.0 + 60.0
    assert lease.expired()
    clock.now = 140.0 + 30.0
    assert lease.expired(waiting=True), "it takes no step by itself"


def test_a_step_is_stalled_after_two_seconds_and_half_as_long_again_as_the_longest() -> None:
    clock, _, lease = leased()
    lease.begin()
    for clock.now, stalled in ((1.9, False), (2.0, True)):
        assert lease.stalled() is stalled
    for clock.now in (10.0, 14.0):
        lease.worked()
    for clock.now, stalled in ((19.9, False), (20.0, True)):
        assert lease.stalled() is stalled


def test_others_are_asked_after_a_second_and_half_as_long_again_as_the_longest() -> None:
    clock, _, lease = leased()
    lease.begin()
    clock.now = 9.0
    assert not lease.doubtful(), "the first step compiles"
    lease.worked()
    for clock.now, doubtful in ((9.9, False), (10.0, True)):
        assert lease.doubtful() is doubtful
    lease.worked()
    clock.now = 14.0
    lease.worked()
    for clock.now, doubtful in ((19.9, False), (20.0, True)):
        assert lease.doubtful() is doubtful
    with lease.busy():
        assert not lease.doubtful(), "no step is intended"


def test_a_checkpoint_takes_its_time() -> None:
    clock, _, lease = leased()
    lease.begin()
    with lease.busy():
        clock.now = 500.0
        assert not lease.expired()
    assert not lease.expired()
    clock.now = 530.0
    assert lease.expired()


def test_what_a_checkpoint_took_is_not_the_measure_of_a_step() -> None:
    clock, _, lease = leased()
    lease.begin()
    lease.worked()
    with lease.busy():
        clock.now = 500.0
    clock.now = 700.0
    lease.worked()
    clock.now = 700.0 + SPAN_S
    assert lease.expired()


EVENTS = st.lists(
    st.tuples(st.sampled_from(["begin", "worked", "busy", "free", "answered"]), st.integers(0, 60)),
    max_size=25,
)


@given(events=EVENTS)
@settings(deadline=None, max_examples=examples(200))
def test_it_is_the_rule_as_it_is_written(events: list[tuple[str, int]]) -> None:
    """Compared after each event with the whole history: (what, when)."""
    clock, client, lease = leased()
    history: list[tuple[str, float]] = [("begin", 0.0)]
    checkpoints = []
    for what, seconds in events:
        clock.now += seconds
        if what == "answered":
            client.answered_at = clock.now
        elif what == "busy":
            checkpoints.append(lease.busy())
            checkpoints[-1].__enter__()
        elif what == "free":
            if not checkpoints:
                continue
            checkpoints.pop().__exit__(None, None, None)
        else:
            getattr(lease, what)()
        history.append((what, clock.now))
        for waiting in (False, True):
            assert lease.expired(waiting=waiting) == expired(history, clock.now, waiting=waiting)


def expired(history: list[tuple[str, float]], now: float, *, waiting: bool) -> bool:
    answered = max((at for what, at in history if what == "answered"), default=0.0)
    signs = [(what, at) for what, at in history if what in ("begin", "worked", "free")]
    steps = [
        at - before
        for (sign, before), (what, at) in itertools.pairwise(signs)
        if sign == what == "worked"
    ]
    names = [what for what, _ in history]
    if names.count("busy") > names.count("free") or now - answered < SPAN_S:
        return False
    longest = 0.0 if waiting else max(steps, default=0.0)
    return now - signs[-1][1] >= max(SPAN_S, 3 * longest)
