"""A bug in the decision about one Job, CronJob, JobFlow or Command stops that object; the others of the same
step are reconciled in the same cycle."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.controllers.cronjob import CronJobController
from central.controllers.elastic_objects import KIND, ElasticObjects
from central.controllers.job import plugins
from central.controllers.job.job import Job
from central.controllers.job.plugins import env
from central.controllers.object_fence import ObjectFence
from central.model.decisions import Create, Decision, EmitWarning, SetSize, SetStatus
from central.model.event_reasons import SET_ASIDE
from central.model.facts import CommandSeen, ElasticGone, ElasticSeen, FlowSeen, FlowStep, JobSeen
from central.model.jobspec import RUNNING, ElasticTask, JobMember, JobSpec, JobStatus, TaskSpec
from central.scheduler.quarantine import Quarantine, SetAsideKey
from tests.central import factories
from tests.central.controllers.job.job_api import NAMESPACE, Api, job
from tests.central.controllers.test_command import command
from tests.central.controllers.test_cronjob import cron

WHY = "set aside after a failure of the scheduler (a bug): "


def fails(*_: object) -> Any:
    raise KeyError("a plugin's bug")


def fails_later(job: JobSpec, task: TaskSpec, index: int, options: Any, pod: Any) -> Any:
    """Not for the first pod, with which the decoder tries the template."""
    return fails() if index else pod


# Where a plugin may raise: while objects are made, or in the middle of the calls for pods.
IN_OBJECTS = SimpleNamespace(
    Options=env.Options, check=env.check, objects=fails, decorate=env.decorate
)
IN_PODS = SimpleNamespace(
    Options=env.Options, check=env.check, objects=env.objects, decorate=fails_later
)


def created(decisions: list[Decision], kind: str) -> set[str]:
    return {each.name for each in decisions if isinstance(each, Create) and each.kind == kind}


def events(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [
        (each.kind, each.name)
        for each in decisions
        if isinstance(each, EmitWarning) and each.reason == SET_ASIDE
    ]


def counts(api: Api) -> dict[str, int]:
    return api.cluster.quarantine.counts()


def poisoned(name: str = "a-poison") -> dict[str, Any]:
    return job({"w": 2}, name=name, plugins={"faulty": []})


@pytest.mark.long
@pytest.mark.parametrize("plugin", [IN_OBJECTS, IN_PODS])
def test_a_plugin_that_raises_stops_one_job(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a restart. Once the bug is gone and the backoff over, the Job runs."""
    plugins._configured.cache_clear()
    api = Api()
    with monkeypatch.context() as patch:
        patch.setitem(plugins.PLUGINS, "faulty", plugin)
        seen: list[Decision] = []
        for name in ("a-poison", "j"):
            api.apply(poisoned(name) if name == "a-poison" else job({"w": 2}, name=name))
        for _ in range(20):
            seen += api.step()
        assert api.phase("j") == "Running"
        assert events(seen) == [("Job", "a-poison")], "it is not tried again at once"
        assert counts(api) == {"Job": 1}
        state = api.status("a-poison")["state"]
        assert (state["phase"], state["reason"]) == ("Pending", SET_ASIDE)
        assert state["message"].startswith(WHY + "KeyError")
        assert not [name for name in api.pods() if name.startswith("a-poison")]

        api.fall()
        api.apply(job({"w": 1}, name="later"))
        api.settle()
        assert (api.phase("j"), api.phase("later")) == ("Running", "Running")
        assert counts(api) == {"Job": 1}
        plugins._configured.cache_clear()
        patch.setitem(plugins.PLUGINS, "faulty", env)
        for _ in range(40):
            api.step(10)
    plugins._configured.cache_clear()
    assert api.phase("a-poison") == "Running", "no dropped call counts as made"
    assert counts(api) == {"Job": 0}
    assert api.status("a-poison")["state"]["reason"] != SET_ASIDE


def test_a_job_that_changes_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins._configured.cache_clear()
    monkeypatch.setitem(plugins.PLUGINS, "faulty", IN_PODS)
    api = Api()
    api.apply(poisoned())
    api.settle()
    assert counts(api) == {"Job": 1}
    api.apply(job({"w": 2}, name="a-poison", plugins={}))
    api.settle()
    assert (api.phase("a-poison"), counts(api)) == ("Running", {"Job": 0})
    plugins._configured.cache_clear()


def test_a_cronjob_that_raises_stops_itself() -> None:
    api = Api()
    raw = cron()
    api.apply(raw)
    api.settle(seconds=0.01)
    known = next(iter(api.cluster.controllers.crons.by_name.values()))  # type: ignore[attr-defined]
    bad = replace(known, name="a", uid="uid-a", template={"metadata": {"labels": 5}})
    api.cluster.controllers.apply(bad)
    decisions = api.step(60)
    assert len(created(decisions, "Job")) == 1, "the other one runs in the same cycle"
    assert events(decisions) == [("CronJob", "a")]
    assert counts(api) == {"CronJob": 1}
    (told,) = (each for each in decisions if isinstance(each, SetStatus) and each.name == "a")
    assert told.status["message"].startswith(WHY + "TypeError")
    api.cluster.controllers.apply(replace(bad, template=known.template))
    (name,) = created(api.step(1), "Job")
    assert name.startswith("a-"), "the failed try did not count as this minute's run"
    assert counts(api) == {"CronJob": 0}


def test_a_jobflow_that_raises_stops_itself() -> None:
    api = Api()
    api.apply({"kind": "JobTemplate", "metadata": {"name": "t"}, "spec": job({"w": 1})["spec"]})
    api.step()
    step = (FlowStep("t"),)
    api.tell(FlowSeen(NAMESPACE, "a", "uid-a", step, status={"completedJobs": 5}))
    api.tell(FlowSeen(NAMESPACE, "b", "uid-b", step))
    decisions = api.step()
    assert created(decisions, "Job") == {"b-t"}
    assert events(decisions) == [("JobFlow", "a")]
    assert counts(api) == {"JobFlow": 1}


def test_a_command_that_raises_stops_itself() -> None:
    """Others are executed in the same cycle, those of the same target too."""
    api = Api()
    api.apply({"kind": "Queue", "metadata": {"name": "q"}, "spec": {}})
    api.apply(job({"w": 1}))
    api.settle()
    bad: Any = ["not", "a", "word"]
    api.tell(CommandSeen(NAMESPACE, "a", "uid-a", bad, "Queue", "q", created=-1.0))
    command(api, "AbortJob")
    decisions = api.step()
    assert events(decisions) == [("Command", "a")]
    api.settle()
    assert (api.phase(), api.names("Command")) == ("Aborted", [])
    assert counts(api) == {"Command": 1}


def test_a_pod_watcher_that_raises_sets_the_job_aside_and_not_the_pod() -> None:
    api = Api()
    restarts: Any = (5,)
    spec = JobSpec(NAMESPACE, "p", "uid-p", (TaskSpec("w", 1, 1, {"spec": {}}),), 1)
    pod = factories.pod("p-w-0", 1, node="n0", phase="Running")
    pod = replace(pod, deleting=True, part=JobMember("p", "uid-p", "w", 0))
    api.tell(JobSeen(spec, JobStatus(RUNNING, restarts=restarts)))
    api.tell(pod)
    api.apply(job({"w": 1}))
    decisions = api.step()  # it checks the invariants too: the Job has its pod
    assert "j" in {each.name for each in decisions if isinstance(each, SetStatus)}
    assert events(decisions) == [("Job", "p")]
    assert counts(api) == {"Job": 1}
    assert api.cluster.state.pods[pod.uid].node == "n0"


@pytest.mark.long
def test_an_answer_that_raises_sets_the_job_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for it for ever: the Job goes on after its backoff."""
    api = Api()
    api.apply(job({"w": 2}))
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_status_answered", fails)
        api.settle()
        assert counts(api) == {"Job": 1}
    for _ in range(200):
        api.step(30)
    assert (api.phase(), counts(api)) == ("Running", {"Job": 0})


@pytest.mark.long
def test_what_an_owner_notes_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other CronJobs are reconciled in the same cycle, and Jobs too."""
    api = Api()
    raw = cron()
    api.apply({**raw, "metadata": {**raw["metadata"], "name": "a"}})
    api.apply({**raw, "metadata": {**raw["metadata"], "name": "b"}})
    real = CronJobController._note_answer

    def note(self: CronJobController, call: Any, key: Any, why: str) -> None:
        if key[1] == "a":
            fails()
        real(self, call, key, why)

    with monkeypatch.context() as patch:
        patch.setattr(CronJobController, "_note_answer", note)
        made = created(api.step(60) + api.step(1), "Job")
        assert {name[0] for name in made} == {"a", "b"}
        api.settle()
        assert api.phase(next(name for name in made if name[0] == "b")) == "Running"
        assert counts(api) == {"CronJob": 1}
    for _ in range(40):
        api.step(10)
    assert counts(api) == {"CronJob": 0}
    assert any(name[0] == "a" and name not in made for name in api.names("Job"))


def test_a_controller_that_fails_once_as_a_whole_loses_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Job's own controller decides before it, and after it again."""
    api, real, calls = Api(), ElasticObjects.decide, list[int]()

    def fails_once(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("a bug")
        return real(*args)

    monkeypatch.setattr(ElasticObjects, "decide", fails_once)
    api.apply(job({"w": 1}))
    api.settle()
    assert len(calls) > 1
    assert api.phase() == "Running"


def test_who_is_due_is_of_the_kind_and_still_there() -> None:
    quarantine = Quarantine()
    first = ObjectFence(quarantine, "Job", 10.0)
    first.failed(("ns", "gone"), "content", KeyError())
    due_at = first.failed(("ns", "a"), "content", KeyError()).retry_at
    ObjectFence(quarantine, "CronJob", 10.0).failed(("ns", "a"), "content", KeyError())
    read = SetAsideKey("Job", ("ns", "read"))  # its fact could not be read: nothing to decide
    quarantine.set_aside(read, ("ns", "read"), KeyError(), "fact", 10.0)
    known = {("ns", "a"), ("ns", "read")}
    assert ObjectFence(quarantine, "Job", due_at - 0.1).retried(known) == []
    assert ObjectFence(quarantine, "Job", due_at).retried(known) == [("ns", "a")]
    assert first.why(("ns", "a"))
    assert not first.why(("ns", "gone"))
    assert quarantine.counts() == {"CronJob": 1, "Job": 2}


def test_who_could_not_be_tried_is_due_later_and_never_earlier() -> None:
    quarantine = Quarantine()
    fence = ObjectFence(quarantine, "Job", 10.0)
    fence.postpone(("ns", "fine"), 1.0)
    found = fence.failed(("ns", "a"), "content", KeyError())
    backoff_ends = found.retry_at
    fence.postpone(("ns", "a"), 1.0)
    assert found.retry_at == backoff_ends > 11.0
    ObjectFence(quarantine, "Job", backoff_ends).postpone(("ns", "a"), 1.0)
    assert found.retry_at == backoff_ends + 1.0
    assert quarantine.counts() == {"Job": 1}


def test_an_object_that_others_name_is_said_to_be_set_aside_only_if_it_is() -> None:
    quarantine = Quarantine()
    read = SetAsideKey("JobTemplate", ("ns", "t"))
    quarantine.set_aside(read, ("ns", "t"), KeyError(), "fact", 10.0)
    fence = ObjectFence(quarantine, "Command", 10.0)
    assert fence.absence("JobTemplate", "t", "ns") == quarantine.absence("JobTemplate", "t", "ns")
    assert fence.absence("JobTemplate", "t", "ns").startswith(f"is {WHY}")
    assert fence.absence("Job", "t", "ns") == fence.absence("JobTemplate", "u", "ns") == ""


def test_an_elastic_object_is_tried_again_when_its_backoff_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it does not change. One that is gone is no longer set aside."""
    state, quarantine, objects = new_scheduler().state, Quarantine(), ElasticObjects()
    seen = ElasticSeen(
        "Deployment", "ns", "web", "u", "deployment/web", ElasticTask("web", 1, 2), 4
    )

    def sizes(now: float) -> list[int]:
        decisions = objects.decide(state, ObjectFence(quarantine, KIND, now), now)
        return [each.size for each in decisions if isinstance(each, SetSize)]

    with monkeypatch.context() as patch:
        patch.setattr(ElasticObjects, "_object", fails)
        objects.apply(seen)
        assert sizes(10.0) == []
    [again_at] = quarantine.retry_times()
    assert sizes(again_at - 1.0) == []
    assert sizes(again_at) == [2]
    assert not quarantine.set_asides
    with monkeypatch.context() as patch:
        patch.setattr(ElasticObjects, "_object", fails)
        objects.apply(replace(seen, size=5))
        assert sizes(again_at + 1.0) == []
    assert quarantine.set_asides
    objects.apply(ElasticGone("Deployment", "ns", "web"))
    assert sizes(again_at + 2.0) == []
    assert not quarantine.set_asides
