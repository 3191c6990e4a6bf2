"""Commands, CronJobs and JobFlows; an invalid one names the field."""

import graphlib
from itertools import product
from typing import Any

import orjson
import pytest

from central.kube.decode import batch_decoder
from central.kube.decode.fields import MalformedObject
from central.model import limits
from central.model.cron_schedule import CronSchedule
from central.model.facts import FlowStep, OwnerSeen, ReadinessCheck
from central.model.json_types import Json
from central.server import codec

META = {"namespace": "ns", "name": "x", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"}


def cron(**spec: Any) -> Json:
    whole = {"schedule": "@hourly", "jobTemplate": {"spec": {"tasks": []}}, **spec}
    return {"metadata": META, "spec": whole, "status": {"lastScheduleTime": "2026-11-20T11:00:00Z"}}


def flow(*steps: Json, **spec: Any) -> Json:
    return {"metadata": META, "spec": {"flows": list(steps), **spec}}


def test_a_cronjob() -> None:
    seen = batch_decoder.decode_cronjob(
        cron(
            timeZone="Europe/Berlin",
            startingDeadlineSeconds=30,
            concurrencyPolicy="Forbid",
            suspend=True,
            successfulJobsHistoryLimit=0,
        )
    )
    assert seen.plan == CronSchedule("0 * * * *", "Europe/Berlin")
    assert (seen.deadline_s, seen.policy, seen.suspend) == (30.0, "Forbid", True)
    assert (seen.keep_done, seen.keep_failed) == (0, 1)
    assert (seen.last or 0) - seen.created == 3600
    assert batch_decoder.decode_cronjob(cron(schedule="@every 1h30m")).plan == CronSchedule(
        "", "", 5400.0, seen.created
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"schedule": "* *"}, 'spec.schedule: "* *" does not have the five fields'),
        ({"schedule": "@every x"}, 'spec.schedule: "@every x": '),
        ({"timeZone": "No/Where"}, 'spec.timeZone: unknown time zone "No/Where"'),
        (
            {"concurrencyPolicy": "Maybe"},
            'spec.concurrencyPolicy: "Maybe" is not one of Allow, Forbid',
        ),
        ({"startingDeadlineSeconds": "1"}, "spec.startingDeadlineSeconds: '1' is not a whole"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds: -1 is not a whole"),
        ({"failedJobsHistoryLimit": -1}, "spec.failedJobsHistoryLimit: -1 is not a whole number"),
        ({"jobTemplate": {}}, "spec.jobTemplate.spec: missing"),
        ({"jobTemplate": None}, "spec.jobTemplate.spec: missing"),
    ],
)
def test_an_invalid_cronjob_names_the_field(spec: Json, why: str) -> None:
    seen = batch_decoder.decode_cronjob(cron(**spec))
    assert seen.error.startswith(why)
    assert seen.plan is None


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (flow({"name": ""}), "spec.flows[0].name: it must name a JobTemplate"),
        (flow({"name": "a"}, jobRetainPolicy="x"), 'spec.jobRetainPolicy: "x" is neither'),
        (
            flow({"name": "a", "dependsOn": {"targets": 3}}),
            "spec.flows[0].dependsOn.targets: 3 is not a list",
        ),
        ({"metadata": META}, "spec: missing"),
    ],
)
def test_an_invalid_jobflow_names_the_field(raw: Json, why: str) -> None:
    assert batch_decoder.decode_jobflow(raw).error.startswith(why)


@pytest.mark.parametrize(
    "read",
    [
        batch_decoder.decode_command,
        batch_decoder.decode_cronjob,
        batch_decoder.decode_jobflow,
        batch_decoder.decode_job_template,
    ],
)
@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": {"name": "x"}}, [], None])
def test_an_object_without_a_name_is_malformed(read: Any, raw: Any) -> None:
    with pytest.raises(MalformedObject):
        read(raw)


def test_facts_survive_the_journal() -> None:
    http = {"port": 80, "path": "/", "httpHeader": {"name": "A", "value": "b"}}
    probe = {
        "taskStatusList": [{"taskName": "w", "phase": "Running"}],
        "httpGetList": [http],
        "tcpSocketList": [{"taskName": "w", "port": 22}],
    }
    step = {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}, "patch": {"jobSpec": {}}}
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "v"}
    facts = [
        batch_decoder.decode_cronjob(cron()),
        batch_decoder.decode_command({"metadata": META, "action": "AbortJob", "target": target}),
        batch_decoder.decode_jobflow(flow({"name": "a"}, step)),
        batch_decoder.decode_job_template({"metadata": META, "spec": {"tasks": []}}),
        OwnerSeen("u", "replicaset/web-1", "deployment/web", 3),
    ]
    written = codec.dumps(codec.tagged(facts))
    assert codec.untagged(orjson.loads(written)) == facts


@pytest.mark.parametrize("schedule", ["@every 1ms", "@every 1s", "@every  90s ", " @every 90s"])
@pytest.mark.parametrize("zone", ["", "Europe/Berlin"])
def test_a_period_is_a_second_at_least_and_counts_from_the_creation(
    schedule: str, zone: str
) -> None:
    seen = batch_decoder.decode_cronjob(cron(schedule=schedule, timeZone=zone))
    period_s = 90.0 if "90" in schedule else 1.0
    assert seen.plan == CronSchedule("", zone, period_s, seen.created)
    assert seen.created > 0


def test_what_a_cronjob_leaves_out() -> None:
    seen = batch_decoder.decode_cronjob(cron())
    assert (seen.deadline_s, seen.policy, seen.suspend) == (None, "Allow", False)
    assert (seen.keep_done, seen.keep_failed, seen.success) == (3, 1, None)
    assert not seen.deleting
    for value, off in ((False, False), ("true", False), (True, True)):
        assert batch_decoder.decode_cronjob(cron(suspend=value)).suspend == off
    raw = cron(startingDeadlineSeconds=0)
    raw["status"] = {"lastSuccessfulTime": "1970-01-01T00:00:09Z"}
    raw["metadata"] = {**META, "deletionTimestamp": "2026-11-20T10:00:00Z"}
    seen = batch_decoder.decode_cronjob(raw)
    assert (seen.deadline_s, seen.last, seen.success, seen.deleting) == (0.0, None, 9.0, True)
    assert seen.status == raw["status"]


# --- Commands ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Job", "Queue", "Pod", ""])
@pytest.mark.parametrize("group", ["batch", "scheduling", "bus", ""])
def test_a_command_is_for_a_job_or_a_queue_of_volcanos_api(kind: str, group: str) -> None:
    target = {"kind": kind, "apiVersion": f"{group}.volcano.sh/v1", "name": "j", "uid": "v"}
    raw = {"metadata": META, "action": "AbortJob", "target": target, "reason": "r", "message": "m"}
    seen = batch_decoder.decode_command(raw)
    ours = (kind, group) in (("Job", "batch"), ("Queue", "scheduling"))
    assert seen.kind == (kind if ours else "")
    assert (seen.namespace, seen.name, seen.uid) == ("ns", "x", "u")
    assert (seen.action, seen.target, seen.target_uid) == ("AbortJob", "j", "v")
    assert (seen.reason, seen.message, seen.leaving) == ("r", "m", False)
    assert seen.created > 0
    leaving = {"metadata": {**META, "deletionTimestamp": "2026-11-20T10:00:00Z"}}
    assert batch_decoder.decode_command(leaving).leaving
    assert batch_decoder.decode_command(leaving).kind == ""


# --- JobFlows ---------------------------------------------------------------


def probed(**probe: Any) -> Json:
    return flow({"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}})


@pytest.mark.parametrize("kind", ["httpGetList", "tcpSocketList"])
@pytest.mark.parametrize("port", [0, 1, 80, 65535, 65536, -1, True, 80.0, "80", None])
def test_a_probe_has_a_port(kind: str, port: Any) -> None:
    good = {"port": 9, "path": "/", "taskName": "w"}
    seen = batch_decoder.decode_jobflow(probed(**{kind: [good, {**good, "port": port}]}))
    if type(port) is int and port in range(1, 65536):
        path = "/" if kind == "httpGetList" else ""
        found = tuple(ReadinessCheck("w", each, path) for each in (9, port))
        assert seen.steps[1].checks == found
        assert not seen.error
    else:
        field = f"spec.flows[1].dependsOn.probe.{kind}[1].port"
        assert seen.error == f"{field}: {port!r} is not a port from 1 to 65535"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"path": "/x"}, ""),
        ({"path": "/x", "httpHeader": None}, ""),
        ({"path": "/x", "httpHeader": {"name": "A", "value": "b"}}, ""),
        ({"path": "/x", "httpHeader": {"name": "A"}}, ""),
        ({"path": "/x", "httpHeader": {"value": "b"}}, ".httpHeader.name: missing"),
        ({"path": "x"}, '.path: "x" does not begin with /'),
        ({}, '.path: "" does not begin with /'),
    ],
)
def test_an_http_probe_has_a_path_and_a_header_with_a_name(fields: Json, why: str) -> None:
    seen = batch_decoder.decode_jobflow(probed(httpGetList=[{"port": 80, **fields}]))
    if why:
        assert seen.error == f"spec.flows[1].dependsOn.probe.httpGetList[0]{why}"
        return
    header = fields.get("httpHeader")
    pair = (header["name"], header.get("value", "")) if header else None
    assert seen.steps[1].checks == (ReadinessCheck("", 80, "/x", pair),)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown", "", "running"])  # fmt: skip
def test_a_probe_of_a_task_waits_for_a_phase_of_pods(phase: str) -> None:
    seen = batch_decoder.decode_jobflow(probed(taskStatusList=[{"taskName": "w", "phase": phase}]))
    if phase and phase != "running":
        assert seen.steps[1].probes == (("w", phase),)
    else:
        field = "spec.flows[1].dependsOn.probe.taskStatusList"
        assert seen.error == f'{field}: "{phase}" is not a phase'


def test_what_a_jobflow_says_is_kept() -> None:
    patch = {"spec": {"queue": "q"}}
    raw = flow({"name": "a", "patch": {"jobSpec": patch}}, {"name": "b", "patch": None})
    raw["status"] = {"state": {"phase": "Running"}}
    seen = batch_decoder.decode_jobflow(raw)
    assert seen.steps == (FlowStep("a", patch=patch), FlowStep("b"))
    assert (seen.phase, seen.status, seen.deleting) == ("Running", raw["status"], False)
    for policy, kept in (("", True), ("retain", True), ("delete", False)):
        assert batch_decoder.decode_jobflow(flow(jobRetainPolicy=policy)).retain == kept
    raw["metadata"] = {**META, "deletionTimestamp": "2026-11-20T10:00:00Z"}
    assert batch_decoder.decode_jobflow(raw).deleting


def test_steps_have_an_order_where_the_standard_library_finds_one() -> None:
    """All graphs of three steps."""
    arrows = [(one, other) for one in "abc" for other in "abc"]
    for chosen in product((False, True), repeat=len(arrows)):
        depends: dict[str, list[str]] = {name: [] for name in "abc"}
        for (one, other), has in zip(arrows, chosen, strict=True):
            if has:
                depends[one].append(other)
        steps = [{"name": name, "dependsOn": {"targets": on}} for name, on in depends.items()]
        seen = batch_decoder.decode_jobflow(flow(*steps))
        try:
            graphlib.TopologicalSorter(depends).prepare()
        except graphlib.CycleError:
            assert seen.error.startswith("spec.flows: dependsOn has a cycle: ")
            assert not seen.steps
        else:
            assert not seen.error
            assert [step.after for step in seen.steps] == [tuple(on) for on in depends.values()]


def test_a_step_may_stand_twice_and_the_last_one_counts_in_a_cycle() -> None:
    first, last = {"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "a"}
    after = {"name": "b", "dependsOn": {"targets": ["a"]}}
    twice = batch_decoder.decode_jobflow(flow(first, after, last))
    assert (twice.error, [step.name for step in twice.steps]) == ("", ["a", "b", "a"])
    cycle = batch_decoder.decode_jobflow(flow(last, after, first))
    assert cycle.error.startswith("spec.flows: dependsOn has a cycle: ")


def test_targets_of_steps_are_there() -> None:
    lost = flow({"name": "a", "dependsOn": {"targets": ["b", "c"]}}, {"name": "b"})
    error = batch_decoder.decode_jobflow(lost).error
    assert error == "spec.flows[0].dependsOn.targets: there is no step c"


# --- what is kept as it is ------------------------------------------------------


def nested(levels: int) -> Any:
    found: Any = 0
    for _ in range(levels):
        found = [found]
    return found


def test_a_job_template_is_kept_as_it_is() -> None:
    parts = {"spec": {"tasks": []}, "status": {"a": 1}}
    meta = {**META, "labels": {"a": "b"}, "annotations": {"c": "d"}}
    seen = batch_decoder.decode_job_template({"metadata": meta, **parts})
    assert (seen.namespace, seen.name, seen.uid) == ("ns", "x", "u")
    assert (seen.spec, seen.status) == (parts["spec"], parts["status"])
    assert (seen.labels, seen.annotations) == ({"a": "b"}, {"c": "d"})


@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("more", [0, 1])
def test_what_is_written_again_is_not_nested_deeper_than_a_hundred_levels(
    part: str, more: int
) -> None:
    deep = {"x": nested(limits.NESTING - 1 + more)}
    deep_flow, deep_cron = flow({"name": "a"}), cron()
    for raw in (deep_flow, deep_cron):
        raw[part] = {**raw.get(part, {}), **deep}
    for read, raw in (
        (batch_decoder.decode_jobflow, deep_flow),
        (batch_decoder.decode_cronjob, deep_cron),
    ):
        if part == "status" and more:
            with pytest.raises(MalformedObject, match="nested more than 100 levels deep"):
                read(raw)
        else:
            assert ("nested more than 100 levels" in read(raw).error) == bool(more)
    template = {"metadata": META, part: {"x": nested(limits.NESTING - 2 + more)}}
    if more:
        with pytest.raises(MalformedObject, match="nested more than 100 levels deep"):
            batch_decoder.decode_job_template(template)
    else:
        batch_decoder.decode_job_template(template)
