"""Calls that a Job makes later, once or not at all, and what is said about it meanwhile."""

from typing import Any

import pytest

from central.controllers.job import control, job_admission
from central.controllers.job.job import WATCH_TIMEOUT_S
from central.model import limits
from central.model.decisions import Create, Decision, Delete, Patch, SetStatus
from central.model.event_reasons import SET_ASIDE
from central.model.facts import Answered
from central.scheduler import cycle
from tests.central.controllers.job.job_api import Api, job
from tests.central.controllers.test_object_fence import WHY, counts, events, fails


def deletions(decisions: list[Decision], kind: str) -> int:
    return sum(isinstance(each, Delete) and each.kind == kind for each in decisions)


def gang_state(api: Api, name: str = "j") -> tuple[str, str]:
    """Phase and message that its PodGroup shows."""
    [group] = [each for each in api.names("PodGroup") if each.startswith(f"{name}-")]
    state = api.cluster.state.gangs["ns", group, True].published.state
    return str(state[0]), str(state[1])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_a_refused_deletion_is_tried_again_later(kind: str) -> None:
    """A second after the first refusal, and twice as long after each other."""
    api = Api()
    raw = job({"w": 1})
    raw["spec"] |= {"ttlSecondsAfterFinished": 5} if kind == "Job" else {}
    api.apply(raw)
    api.settle()
    api.refuses = lambda call: "not now" if isinstance(call, Delete) and call.kind == kind else ""
    if kind == "Job":
        api.end("j-w-0")
        api.wait(5.0)
    else:
        api.command("AbortJob")
    tried = sum(deletions(api.step(0.1), kind) for _ in range(70))
    assert 2 <= tried <= 4
    api.refuses = lambda _: ""
    api.wait(60.0)
    assert ("Job", "j") not in api.there if kind == "Job" else not api.pods()


class Unanswered(Api):
    """An API server that is slow to create pods: no answer comes."""

    def _carry_out(self, decision: Decision) -> None:
        if not isinstance(decision, Create) or decision.kind != "Pod":
            super()._carry_out(decision)


def test_no_more_pods_are_requested_than_may_be_in_flight() -> None:
    api = Unanswered()
    api.apply(job({"w": limits.CREATES + 10}, cpu="1m"))
    made = [each for _ in range(4) for each in api.step() if isinstance(each, Create)]
    raw = api.job()
    api.apply({**raw, "spec": {**raw["spec"], "maxRetry": 7}})  # it is looked at again
    made += [each for _ in range(4) for each in api.step() if isinstance(each, Create)]
    assert sum(each.kind == "Pod" for each in made) == limits.CREATES


class Late(Api):
    """One pod is created late."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Decision] = []

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Create) and decision.name == "j-w-1" and not self.late:
            self.late.append(decision)
        else:
            super()._carry_out(decision)


@pytest.mark.parametrize(
    ("action", "meanwhile", "then"),
    [("RestartJob", "Restarting", "Running"), ("AbortJob", "Aborting", "Aborted")],
)
def test_no_try_is_over_while_a_pod_of_it_may_come(action: str, meanwhile: str, then: str) -> None:
    """It would come when the next try has begun, which it would be taken for a part of."""
    api = Late()
    api.apply(job({"w": 2}))
    for _ in range(4):
        api.step()
    assert list(api.pods()) == ["j-w-0"]
    api.command(action)
    for _ in range(6):
        api.step()
    assert (api.pods(), api.phase()) == ({}, meanwhile)
    api._carry_out(api.late[0])
    api.settle()
    assert api.phase() == then
    assert all(api.annotation(pod, "volcano.sh/job-version") == "1" for pod in api.pods())


class Vanishing(Late):
    """It is created, and deleted before the watch has shown it."""

    def _carry_out(self, decision: Decision) -> None:
        super()._carry_out(decision)
        if [decision] == self.late:
            self.tell(Answered("Create", "Pod", "ns", "j-w-1", "uid"))


def test_a_pod_that_the_watch_never_shows_is_waited_for_so_long() -> None:
    api = Vanishing()
    api.apply(job({"w": 2}))
    for _ in range(4):
        api.step()
    api.command("RestartJob")
    for _ in range(6):
        api.step()
    assert (api.pods(), api.phase()) == ({}, "Restarting")
    due = cycle.due(api.cluster, api.now)
    assert due is not None
    assert due <= api.now + WATCH_TIMEOUT_S
    api.wait(due - api.now)
    assert api.phase() == "Running"


def test_commands_that_come_together_are_executed_in_order() -> None:
    api = Api()
    api.apply(job({"w": 1}))
    api.settle()
    api.command("AbortJob")
    api.command("ResumeJob")
    phases = []
    for _ in range(12):
        api.step()
        phases.append(api.phase())
    assert {"Aborting", "Running"} <= set(phases)
    assert (phases[-1], api.annotation("j-w-0", "volcano.sh/job-version")) == ("Running", "1")


@pytest.mark.parametrize(
    ("action", "phase"), [("CompleteJob", "Completing"), ("TerminateJob", "Terminating")]
)
def test_a_gang_shows_that_its_pods_are_being_deleted(action: str, phase: str) -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    api.grace_steps = 10
    api.command(action)
    for _ in range(4):
        api.step()
    assert api.phase() == phase
    assert gang_state(api) == ("Running", f"job j is {phase}; its pods are being deleted")


def test_a_new_phase_comes_with_the_counts_of_its_pods() -> None:
    """Those of former pods do not count after a restart."""
    api = Api()
    api.apply(job({"w": 2}, "PodFailed RestartJob"))
    told: dict[str, Any] = {}

    def look(steps: int) -> None:
        for _ in range(steps):
            for each in api.step():
                if isinstance(each, SetStatus) and each.kind == "Job":
                    told.setdefault(each.status["state"]["phase"], each.status)

    look(10)
    assert told["Running"]["running"] == 2
    api.end("j-w-0", 1)
    look(3)
    assert told["Restarting"]["terminating"] == 2
    assert not told["Restarting"].get("running")


def test_the_next_scheduler_writes_no_size_again() -> None:
    api = Api()
    api.apply(job({"w": 2}))
    api.settle()
    api.fall()
    decisions = [each for _ in range(5) for each in api.step()]
    assert not [each for each in decisions if isinstance(each, Patch)]


def test_a_job_that_is_set_aside_says_so_in_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is Pending, one that runs goes on running, and each is written once."""
    api = Api()
    api.apply(job({"w": 1}, name="runs"))
    api.settle()
    monkeypatch.setattr(control, "decide", fails)
    api.apply(job({"w": 1}, name="new"))
    raw = api.job("runs")
    api.apply({**raw, "spec": {**raw["spec"], "maxRetry": 7}})
    seen = [each for _ in range(5) for each in api.step()]
    for name, phase in (("new", "Pending"), ("runs", "Running")):
        state = api.status(name)["state"]
        assert (state["phase"], state["reason"]) == (phase, SET_ASIDE)
        assert state["message"].startswith(WHY)
    written = [each for each in seen if isinstance(each, SetStatus) and each.kind == "Job"]
    assert sorted(each.name for each in written) == ["new", "runs"]


def test_a_check_of_quota_that_raises_sets_one_job_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its PodGroup says it too."""
    real = job_admission._refusal

    def refusal(queues: Any, least: Any, gang: Any, *rest: Any) -> str:
        return fails() if gang.name.startswith("bad-") else real(queues, least, gang, *rest)

    monkeypatch.setattr(job_admission, "_refusal", refusal)
    api = Api()
    api.apply(job({"w": 1}, name="bad"))
    api.apply(job({"w": 1}, name="good"))
    seen = [each for _ in range(8) for each in api.step()]
    assert events(seen) == [("Job", "bad")]
    assert (api.phase("good"), counts(api)) == ("Running", {"Job": 1})
    phase, why = gang_state(api, "bad")
    assert (phase, why.startswith(WHY)) == ("Pending", True)
