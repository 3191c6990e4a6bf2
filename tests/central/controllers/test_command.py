"""Commands: obeyed once, then taken away; the centre may fall at any call."""

from typing import Any

import pytest

from central.controllers.composite import BatchControllers
from central.model.decisions import Decision, Delete, SetStatus, UpdateGangStatus
from central.server.history.gang_records import GangRecords
from tests.central.controllers.job.job_api import Api, job

Json = dict[str, Any]


def command(api: Api, action: str, number: int = 0, kind: str = "Job", **target: Any) -> str:
    group = {"Job": "batch.volcano.sh/v1alpha1", "Queue": "scheduling.volcano.sh/v1beta1"}
    name = f"c-{number}"
    meant = {"apiVersion": group.get(kind, "x/v1"), "kind": kind, "name": "j", **target}
    if kind == "Job" and "uid" not in target:
        meant["uid"] = api.job(meant["name"])["metadata"]["uid"]
    api.apply({"kind": "Command", "metadata": {"name": name}, "action": action, "target": meant})
    return name


def warnings(api: Api) -> list[Json]:
    return [e for (kind, _), e in api.there.items() if kind == "Event" and e["type"] == "Warning"]


def started(calls_left: int | None = None) -> Api:
    api = Api(calls_left=calls_left)
    api.apply(job({"w": 2}))
    api.settle()
    return api


def test_a_job_is_suspended_and_resumed() -> None:
    api = started()
    command(api, "AbortJob")
    api.settle()
    assert (api.phase(), api.pods(), api.names("Command")) == ("Aborted", {}, [])
    command(api, "ResumeJob", 1)
    api.settle()
    assert api.phase() == "Running"
    assert len(api.pods()) == 2


def test_a_suspended_job_waits_for_nobody() -> None:
    api = Api()
    records, told = GangRecords(api.cluster), dict[str, str]()

    def settle() -> None:
        while decisions := api.step():
            records.observe((), decisions)
            told.update({d.gang: d.cause for d in decisions if isinstance(d, UpdateGangStatus)})

    records.observe((), ())
    api.apply(job({"w": 2}))
    settle()
    command(api, "AbortJob")
    settle()
    assert [*told.values()] == ["suspended"]
    assert api.cluster.queue_statuses.by_queue() == {}, "neither pending nor in the order"
    [gang] = told
    record = records.find("ns", gang)
    assert isinstance(record, dict)
    assert record["stage"] == "suspended"
    command(api, "ResumeJob", 1)
    settle()
    assert api.cluster.queue_statuses._counts["default"] == {"running": 1}
    record = records.find("ns", gang)
    assert isinstance(record, dict)
    happened = [each["what"] for each in record["events"]]
    assert happened.index("suspended") < happened.index("resumed") < happened.index("running", 5)
    assert not {"failed", "completed", "waits again", "shrank"} & {*happened}


def test_commands_for_one_job_run_one_at_a_time() -> None:
    api = started()
    for number, action in enumerate(("AbortJob", "ResumeJob")):
        command(api, action, number)
    taken = []
    while api.names("Command"):
        before = api.phase()
        taken += [
            (d.name, before) for d in api.step() if isinstance(d, Delete) and d.kind == "Command"
        ]
    assert taken == [("c-0", "Aborting"), ("c-1", "Restarting")]
    api.settle()
    assert (api.phase(), len(api.pods())) == ("Running", 2)


def test_what_is_not_ours_stays() -> None:
    api = started()
    command(api, "AbortJob", 0, uid="of another")
    command(api, "AbortJob", 1, name="unknown", uid="")
    command(api, "AbortJob", 2, apiVersion="batch/v1")
    command(api, "AbortJob", 3, kind="Deployment")
    api.settle()
    assert api.names("Command") == [f"c-{number}" for number in range(4)]
    assert api.phase() == "Running"


def test_a_command_that_comes_before_its_job_waits_for_it() -> None:
    api = Api()
    api.apply(
        {
            "kind": "Command",
            "metadata": {"name": "early"},
            "action": "AbortJob",
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"},
        }
    )
    api.settle()
    assert api.names("Command") == ["early"]
    api.apply(job({"w": 2}))
    api.settle()
    assert (api.phase(), api.names("Command")) == ("Aborted", [])


def test_a_command_waits_for_a_job_that_a_bug_keeps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user reads so, once, and it is executed when the Job is known."""
    api = Api()
    with monkeypatch.context() as patch:
        patch.setattr(BatchControllers, "_job_changed", _raises)
        api.apply(job({"w": 2}))
        api.settle()
        command(api, "AbortJob")
        api.settle()
        assert api.names("Command") == ["c-0"]
        [event] = [each for each in warnings(api) if each["reason"] == "CommandWaits"]
        assert event["message"].startswith(
            "AbortJob by Command c-0 waits: Job j is set aside after a failure of the scheduler"
        )
        assert event["involvedObject"]["kind"] == "Job"
    api.wait(400.0)
    assert (api.phase(), api.names("Command")) == ("Aborted", [])


def _raises(*_: object) -> None:
    raise KeyError("a handler")


def test_an_action_that_does_not_exist_is_an_event() -> None:
    api = started()
    command(api, "MakeTea")
    api.settle()
    assert api.phase() == "Running"
    [said] = warnings(api)
    assert said["message"].startswith('action: "MakeTea" must be one of AbortJob, ')


def test_pods_are_restarted_by_policies_alone() -> None:
    api = started()
    command(api, "RestartPod")
    api.settle()
    assert (api.phase(), api.names("Command")) == ("Running", [])
    assert any("RestartPod" in e.get("message", "") for e in warnings(api))


def test_one_that_changes_nothing_is_taken_away() -> None:
    api = started()
    command(api, "ResumeJob")
    api.settle()
    assert (api.phase(), api.names("Command"), api.status()["version"]) == ("Running", [], 0)


def test_one_that_is_being_deleted_is_not_obeyed() -> None:
    api = started()
    api.apply(
        {
            "kind": "Command",
            "metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "action": "AbortJob",
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"},
        }
    )
    api.settle()
    assert api.phase() == "Running"


def test_queues_are_closed_and_opened() -> None:
    api = started()
    api.apply({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}})
    for number, (action, state) in enumerate((("CloseQueue", "Closed"), ("OpenQueue", "Open"))):
        command(api, action, number, "Queue", name="q")
        api.settle()
        assert api.there["Queue", "q"]["spec"] == {"weight": 1, "state": state}
    assert api.names("Command") == []


@pytest.mark.parametrize("verb", [Delete, SetStatus])
def test_a_refusal_is_asked_again_later(verb: type[Delete | SetStatus]) -> None:
    api = started()
    refusals = iter(["you may not"])

    def refuses(decision: Decision) -> str:
        refused = isinstance(decision, verb) and decision.kind in ("Command", "Job")
        return next(refusals, "") if refused else ""

    api.refuses = refuses
    command(api, "RestartJob")
    for _ in range(3):
        api.step()
    assert api.names("Command") == ["c-0"]
    api.settle()
    api.wait(11.0)
    assert (api.phase(), api.names("Command")) == ("Running", [])
    assert (api.status()["version"], api.status()["retryCount"]) == (1, 1)


@pytest.mark.parametrize("calls", range(30))
def test_the_centre_falls_anywhere(calls: int) -> None:
    """A Command is executed once: a restart is counted."""
    before = started().calls
    api = started(before + calls)
    command(api, "RestartJob")
    command(api, "AbortJob", 1)
    command(api, "ResumeJob", 2)
    api.settle()
    assert (api.names("Command"), api.phase(), len(api.pods())) == ([], "Running", 2)
    assert (api.status()["version"], api.status()["retryCount"]) == (2, 1)


@pytest.mark.parametrize("calls", range(4))
def test_the_centre_falls_while_a_queue_is_closed(calls: int) -> None:
    """Who opens it again by hand is not overruled by a Command that was obeyed before."""
    api = Api(calls_left=calls)
    api.apply({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}})
    command(api, "CloseQueue", 0, "Queue", name="q")
    opened = False
    for _ in range(12):
        api.step()
        if not opened and api.there["Queue", "q"]["spec"].get("state") == "Closed":
            api.apply({**api.there["Queue", "q"], "spec": {"weight": 1, "state": "Open"}})
            opened = True
    assert (opened, api.names("Command")) == (True, [])
    assert api.there["Queue", "q"]["spec"]["state"] == "Open"
