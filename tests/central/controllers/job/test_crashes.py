"""The centre falls between any two calls to the API, and another takes over from what is there: the
end is the same, and nothing is made twice."""

from collections.abc import Callable

import pytest

from tests.central.controllers.job.job_api import Api, Json, job

FlowStep = tuple[Callable[[Api], bool], Callable[[Api], None]]


def running(names: int, version: str = "0") -> Callable[[Api], bool]:
    def there(api: Api) -> bool:
        of_version = [
            name for name in api.pods() if api.annotation(name, "volcano.sh/job-version") == version
        ]
        return len(of_version) == names and all(api.pods()[n] == "Running" for n in of_version)

    return there


def fail(name: str) -> Callable[[Api], None]:
    return lambda api: api.end(name, 1)


def finish(api: Api) -> None:
    for name, phase in api.pods().items():
        if phase == "Running":
            api.end(name)


def phase(name: str) -> Callable[[Api], bool]:
    return lambda api: api.phase() == name


def recreated(name: str) -> Callable[[Api], bool]:
    """The pod runs again, by itself."""
    return lambda api: (
        api.pods().get(name) == "Running"
        and api.annotation(name, "lockstep.dev/pod-restarts") == "1"
    )


def scaled(api: Api) -> None:
    raw = api.job()
    [task] = raw["spec"]["tasks"]
    api.apply(
        {**raw, "spec": {**raw["spec"], "minAvailable": 1, "tasks": [{**task, "replicas": 1}]}}
    )


PAIR = {"w": 2}
STORIES: dict[str, tuple[Json, list[FlowStep], str]] = {
    "it completes": (job(PAIR), [(running(2), finish)], "Completed"),
    "a pod fails, the Job restarts": (
        job(PAIR, "PodFailed RestartJob"),
        [(running(2), fail("j-w-0")), (running(2, "1"), finish)],
        "Completed",
    ),
    "a pod is evicted, the Job restarts": (
        job(PAIR, "PodEvicted RestartJob"),
        [(running(2), lambda api: api.evict("j-w-1")), (running(2, "1"), finish)],
        "Completed",
    ),
    "a pod fails and is made anew": (
        job(PAIR, "PodFailed RestartPod"),
        [(running(2), fail("j-w-0")), (recreated("j-w-0"), finish)],
        "Completed",
    ),
    "restarted too often": (
        job(PAIR, "PodFailed RestartJob", maxRetry=2),
        [(running(2), fail("j-w-0")), (running(2, "1"), fail("j-w-1"))],
        "Failed",
    ),
    "the master is done": (
        job(
            {"m": 1, "w": 2},
            of={"m": {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}},
        ),
        [(running(3), lambda api: api.end("j-m-0"))],
        "Completed",
    ),
    "one task after the other": (
        job({"a": 1, "b": 1}, of={"b": {"dependsOn": {"name": ["a"]}}}, maxRetry=3),
        [(running(2), finish)],
        "Completed",
    ),
    "it shrinks": (
        job({"w": 3}, "PodEvicted RestartJob"),
        [(running(3), scaled), (running(1), finish)],
        "Completed",
    ),
    "with what its plugins make": (
        job(PAIR, plugins={"svc": [], "ssh": []}, volumes=[{"mountPath": "/d", "volumeClaim": {}}]),
        [(running(2), finish)],
        "Completed",
    ),
}


def live(name: str, calls: int | None, grace: int) -> Api:
    raw, steps, _ = STORIES[name]
    api = Api(calls_left=calls, nodes=1)
    api.grace_steps = grace
    if "volumes" in raw["spec"]:
        raw["spec"]["volumes"][0]["volumeClaim"] = {"accessModes": ["ReadWriteOnce"]}
    api.apply(raw)
    left = list(steps)
    for _ in range(60):
        api.step()
        if left and left[0][0](api):
            left.pop(0)[1](api)
        if not left:
            break
    api.settle()
    assert not left, f"{name} stops after {calls} calls: {api.status()}, {api.pods()}"
    return api


def end_of(api: Api) -> Json:
    """What must be the same whoever lived through it."""
    status = api.status()
    return {
        "phase": api.phase(),
        "pods": api.pods(),
        "counts": {
            k: status[k] for k in ("succeeded", "failed", "running", "pending", "terminating")
        },
        "version": status["version"],
        "retries": status["retryCount"],
        "objects": sorted((kind, name) for kind, name in api.there if kind != "Event"),
    }


SLOW = (  # where it matters that pods take their time to go
    "a pod is evicted, the Job restarts",
    "a pod fails and is made anew",
    "the master is done",
    "it shrinks",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "grace"), [*((name, 0) for name in STORIES), *((name, 2) for name in SLOW)]
)
def test_a_fall_after_any_call(name: str, grace: int) -> None:
    whole = live(name, None, grace)
    assert whole.phase() == STORIES[name][2]
    for calls in range(whole.calls + 1):
        api = live(name, calls, grace)
        assert end_of(api) == end_of(whole), f"after {calls} calls"
        twice = {
            what: times for what, times in api.made.items() if times > 1 and what[0] != "Event"
        }
        assert not twice, f"after {calls} calls"
