"""Commands, CronJobs and JobFlows; an invalid one names the field."""

from typing import Any

import orjson
import pytest

from central.kube.decode import batch_decoder
from central.kube.decode.fields import MalformedObject
from central.model.cron_schedule import CronSchedule
from central.model.facts import OwnerSeen
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
        ({"concurrencyPolicy": "Maybe"}, 'spec.concurrencyPolicy: "Maybe" is not Allow, Forbid'),
        ({"startingDeadlineSeconds": "1"}, "spec.startingDeadlineSeconds: '1' is not a whole"),
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
