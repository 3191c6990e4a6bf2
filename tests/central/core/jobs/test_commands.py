"""Commands: taken away first, then obeyed, once; the centre may fall at any call."""

from typing import Any

import pytest

from central.core.decisions import Decision, Delete
from tests.central.core.jobs.api import Api, job

Json = dict[str, Any]


def command(api: Api, action: str, number: int = 0, kind: str = "Job", **target: Any) -> str:
    group = {"Job": "batch.volcano.sh/v1alpha1", "Queue": "scheduling.volcano.sh/v1beta1"}
    name = f"c-{number}"
    meant = {"apiVersion": group.get(kind, "x/v1"), "kind": kind, "name": "j", **target}
    if kind == "Job" and "uid" not in target:
        meant["uid"] = api.job(meant["name"])["metadata"]["uid"]
    api.apply({"kind": "Command", "metadata": {"name": name}, "action": action, "target": meant})
    return name


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


def test_the_same_job_is_told_one_after_the_other() -> None:
    api = started()
    for number, action in enumerate(("AbortJob", "ResumeJob")):
        command(api, action, number)
    taken = [d.name for d in api.step() if isinstance(d, Delete) and d.kind == "Command"]
    assert taken == ["c-0"]
    api.settle()
    assert (api.phase(), api.names("Command")) == ("Running", [])


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


def test_an_action_that_does_not_exist_is_an_event() -> None:
    api = started()
    command(api, "MakeTea")
    api.settle()
    assert api.phase() == "Running"
    [said] = [e for (kind, _), e in api.there.items() if kind == "Event" and e["type"] == "Warning"]
    assert said["message"].startswith('action: "MakeTea" is not one of AbortJob, ')


def test_queues_are_closed_and_opened() -> None:
    api = started()
    api.apply({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}})
    for number, (action, state) in enumerate((("CloseQueue", "Closed"), ("OpenQueue", "Open"))):
        command(api, action, number, "Queue", name="q")
        api.settle()
        assert api.there["Queue", "q"]["spec"] == {"weight": 1, "state": state}
    assert api.names("Command") == []


def test_a_refusal_is_asked_again_later() -> None:
    api = started()
    refusals = iter(["you may not"])

    def refuses(decision: Decision) -> str:
        takes = isinstance(decision, Delete) and decision.kind == "Command"
        return next(refusals, "") if takes else ""

    api.refuses = refuses
    command(api, "AbortJob")
    api.settle()
    assert (api.phase(), api.names("Command")) == ("Running", ["c-0"])
    api.wait(11.0)
    assert (api.phase(), api.names("Command")) == ("Aborted", [])


@pytest.mark.parametrize("calls", range(30))
def test_the_centre_falls_anywhere(calls: int) -> None:
    """A Command is obeyed once, or (where the centre falls between taking and obeying) not at all."""
    api = started()
    before = api.calls
    api = started(before + calls)
    command(api, "AbortJob")
    api.settle()
    assert api.names("Command") == []
    assert api.phase() in ("Aborted", "Running")
    if api.phase() == "Aborted":
        assert api.pods() == {}
