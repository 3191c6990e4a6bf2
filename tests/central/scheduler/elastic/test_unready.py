"""Members that get a seat and do not start: the others go on without them, and the seats are not held for ever."""

from typing import Any

import pytest

from central.kube.decode.pod_starts import start_fields
from central.model.facts import PodGone
from central.scheduler.elastic.unready import JOIN_WAIT_S, LOWERED_S
from tests.central import factories
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic, members
from tests.central.scheduler.elastic.test_size_reasons import Asked

PULL = "ImagePullBackOff"
HOLD_S = 60.0


def size(api: Api) -> int:
    return int(api.status()["elastic"]["worker"]["size"])


def reason(api: Api) -> str:
    return str(api.status()["elastic"]["worker"]["reason"])


def passes(api: Api, seconds: float) -> None:
    for _ in range(int(seconds)):
        api.step(1.0)


def broken_from(number: int, least: int = 2, most: int = 6, **more: Any) -> Asked:
    """Members from this number on do not start."""
    api = Asked(nodes=1)
    api.cannot_start = lambda name: PULL if int(name.rpartition("-")[2]) >= number else ""
    api.apply(elastic(least=least, most=most, **more))
    api.settle(most=8)
    return api


def test_those_who_start_keep_their_seats_and_the_others_give_theirs_back() -> None:
    api = broken_from(4)
    assert members(api) == "0-5"
    passes(api, JOIN_WAIT_S - 12.0)
    assert members(api) == "0-5", "a pull may fail once or twice"
    passes(api, 20.0)
    assert members(api) == "0-3"
    assert reason(api) == f"members 4-5 do not start: {PULL} (try 1 of 3)"
    assert api.status()["retryCount"] == 0


@pytest.mark.long
def test_after_three_tries_the_target_is_lower_for_a_while() -> None:
    api = broken_from(4)
    changes: list[int] = []
    for _ in range(400):
        api.step(1.0)
        if not changes or changes[-1] != size(api):
            changes.append(size(api))
    assert changes == [6, 4, 6, 4, 6, 4]
    assert (
        reason(api) == f"members 4-5 do not start: {PULL} (try 3 of 3); no more than 4 for 10 min"
    )
    assert f"members 4-5 do not start: {PULL}; it is tried again in" in api.why()
    began = api.now
    while size(api) == 4:
        api.step(1.0)
        assert api.now - began < LOWERED_S + 2 * HOLD_S, "it is tried again"
    assert api.now - began > LOWERED_S - 400.0


@pytest.mark.long
def test_growth_that_succeeds_ends_the_count() -> None:
    api = broken_from(4)
    while size(api) != 4 or "try 2" not in reason(api):
        api.step(1.0)
    api.cannot_start = lambda name: ""
    while size(api) != 6:
        api.step(1.0)
    api.settle()
    api.cannot_start = lambda name: PULL
    api.evict("j-worker-5")
    while "do not start" not in reason(api) and "does not start" not in reason(api):
        api.step(1.0)
    assert "(try 1 of 3)" in reason(api)


@pytest.mark.long
def test_the_least_size_is_kept() -> None:
    """Also where nobody starts: the Job's owner sees why, and the seats above are others'."""
    api = broken_from(0, least=3)
    passes(api, JOIN_WAIT_S + 10.0)
    assert members(api) == "0-2"
    assert reason(api).startswith("members 3-5 do not start")
    passes(api, 300.0)
    assert len(api.pods()) in (3, 6)


def test_whole_steps_leave() -> None:
    api = broken_from(5, arguments=["--step=2"])
    passes(api, JOIN_WAIT_S + 10.0)
    assert size(api) == 4


@pytest.mark.long
def test_a_member_that_runs_or_merely_takes_its_time_stays() -> None:
    api = Asked(nodes=1)
    api.cannot_start = lambda name: "ContainerCreating" if name.endswith("5") else ""
    api.apply(elastic(most=6))
    passes(api, 200.0)
    assert members(api) == "0-5"


@pytest.mark.parametrize(
    ("said", "stuck"),
    [
        ("ErrImagePull", PULL),
        (PULL, PULL),
        ("CreateContainerConfigError", "CreateContainerConfigError"),
        ("CrashLoopBackOff", ""),
        ("ContainerCreating", ""),
        (["x"], ""),
        (None, ""),
    ],
)
def test_reasons_of_the_kubelet(said: object, stuck: str) -> None:
    status = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"running": {}}}, {"state": {"waiting": {"reason": said}}}],
    }
    found = start_fields({"nodeName": "n"}, status)
    assert (found["stuck"], found["ready"]) == (stuck, not stuck)


@pytest.mark.long
def test_a_job_does_not_grow_while_a_member_does_not_start() -> None:
    """Not even just after its start, when growth costs nothing. It cannot do without the member, so it waits for it."""
    api = Asked(nodes=1)
    other = factories.pod("other", cpu=6 * 8000, ours=False, node="n0", phase="Running")
    api.tell(other)
    api.cannot_start = lambda name: PULL if name == "j-worker-1" else ""
    api.apply(elastic(least=2, most=6))
    api.settle(most=8)
    assert size(api) == 2
    api.tell(PodGone(other.uid))
    passes(api, 60.0)
    assert size(api) == 2
    assert api.why().endswith(f"member 1 does not start: {PULL}; it does not grow meanwhile")
    ready = {"type": "Ready", "status": "True"}
    started = {"phase": "Running", "conditions": [ready]}
    api._put({**api.there["Pod", "j-worker-1"], "status": started})
    passes(api, 60.0)
    assert size(api) == 6
