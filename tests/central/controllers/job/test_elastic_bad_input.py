"""What users get wrong on elastic Jobs: one sentence in the status that names the field, no pods, and others that run
are not disturbed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic, members

Json = dict[str, Any]
MIB = 1 << 20
NOTE = "annotation lockstep.dev/"


def of_task(**fields: Any) -> Callable[[Json], None]:
    """None: the field is left out."""

    def change(raw: Json) -> None:
        [task] = raw["spec"]["tasks"]
        task |= fields
        for name in [name for name, value in fields.items() if value is None]:
            del task[name]

    return change


def noted(key: str, value: str) -> Callable[[Json], None]:
    def change(raw: Json) -> None:
        raw["metadata"]["annotations"][f"lockstep.dev/{key}"] = value

    return change


def given(*arguments: Any) -> Callable[[Json], None]:
    def change(raw: Json) -> None:
        raw["spec"]["plugins"]["elastic"] = list(arguments)

    return change


def without_any_least(raw: Json) -> None:
    of_task(minAvailable=None)(raw)
    del raw["spec"]["minAvailable"]


def twice(raw: Json) -> None:
    raw["spec"]["tasks"] *= 2


CASES: dict[str, tuple[Callable[[Json], None], str]] = {
    "least above most": (of_task(minAvailable=13), "spec.tasks[0].minAvailable: 13 exceeds the 12"),
    "a least of 0": (of_task(minAvailable=0), "spec.plugins.elastic: task worker needs a minAvail"),
    "a least of -1": (of_task(minAvailable=-1), "spec.tasks[0].minAvailable: -1 is not a whole"),
    "a least of text": (of_task(minAvailable="2"), "spec.tasks[0].minAvailable: '2' is not a whol"),
    "no least": (without_any_least, "spec.tasks[0].minAvailable: missing; plugin elastic needs the l"),
    "most of 10^9": (of_task(replicas=10**9), "spec.tasks[0].replicas: "),
    "a step of 30 digits": (given("--step=" + "9" * 30), "spec.plugins.elastic: --step: 9999"),
    "a check of -1 s": (given("--preflight=-1"), 'spec.plugins.elastic: "--preflight=-1": '),
    "a check without a coordinator": (given("--preflight=60"), "spec.plugins.elastic: --preflight: needs --coord"),
    "spares without a coordinator": (given("--spares=1"), "spec.plugins.elastic: --spares: needs --coordinator"),
    "slow ones without a coordinator": (given("--replace-slow=60"), "spec.plugins.elastic: --replace-slow: needs"),
    "a step that does not fit": (given("--step=3"), "spec.plugins.elastic: --step: 3 does not divide the 10 pods between"),
    "a step of 0": (given("--step=0"), "spec.plugins.elastic: --step: 0 does not divide"),
    "a task that is not there": (given("--task=nobody"), 'spec.plugins.elastic: --task: the job has no task "nobody"'),
    "a step of -1": (given("--step=-1"), 'spec.plugins.elastic: "--step=-1": "-1" is not a whole'),
    "a step of text": (given("--step=many"), 'spec.plugins.elastic: "--step=many": "many" is not'),
    "a hold of -5s": (given("--hold=-5s"), "spec.plugins.elastic: --hold: \"-5s\" is not a duration"),
    "a hold of centuries": (given("--hold=99999999999h"), "spec.plugins.elastic: --hold: \"999999"),
    "a task with a newline": (given("--task=a\nb"), 'spec.plugins.elastic: --task: the job has no'),
    "a task with NUL": (given("--task=a\x00"), 'spec.plugins.elastic: --task: the job has no task'),
    "a task of 10 KiB": (given("--task=" + "x" * 10_240), "spec.plugins.elastic[0]: 10247 charact"),
    "no value": (given("--task"), 'spec.plugins.elastic: "--task" needs a value'),
    "an argument that is a number": (given(1), "spec.plugins.elastic[0]: 1 is not a string"),
    "two tasks of one name": (twice, "spec.tasks[1].name: worker is used twice"),
    "a cost of NaN": (noted("resize-cost", "nan"), NOTE + "resize-cost: \"nan\" is not a duration"),
    "a cost of infinity": (noted("resize-cost", "inf"), NOTE + "resize-cost: \"inf\" is not a dur"),
    "a cost of -3s": (noted("resize-cost", "-3s"), NOTE + "resize-cost: \"-3s\" is not a duration"),
    "a cost above a day": (noted("resize-cost", "25h"), NOTE + "resize-cost: more than 86400 sec"),
    "a cost of 1 MiB": (noted("resize-cost", "1s" * (MIB // 2)), NOTE + "resize-cost: "),
    "speeds of 1 MiB": (noted("speed", "1:1 " * (MIB // 4)), NOTE + "speed: 1048576 characters"),
    "a speed of text": (noted("speed", "1:fast 2:2"), NOTE + 'speed: "1:fast" is not MEMBERS:SPE'),
    "a speed of 0": (noted("speed", "1:0 2:2"), NOTE + 'speed: "1:0" is not MEMBERS:SPEED'),
    "a speed of infinity": (noted("speed", "1:inf 2:2"), NOTE + 'speed: "1:inf" is not MEMBERS'),
    "one speed": (noted("speed", "4:1"), NOTE + "speed: 1 entries, not 2 to 2000"),
    "ten thousand speeds": (
        noted("speed", " ".join(f"{size}:1" for size in range(1, 10_001))),
        NOTE + "speed: 68893 characters; at most 32768",
    ),
    "yields of 1 MiB": (noted("yields", "x" * MIB), NOTE + 'yields: "xxxx'),
    "yields with a newline": (noted("yields", "a\n\x00"), NOTE + "yields: "),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_the_field_is_named_and_nobody_else_is_disturbed(what: str) -> None:
    change, says = CASES[what]
    raw = elastic(name="bad")
    change(raw)
    api = Api(nodes=1)
    api.apply(elastic(most=4))
    api.settle()
    pods = api.pods()
    api.apply(raw)
    api.settle()
    message = api.status("bad")["state"]["message"]
    assert message.startswith(says)
    assert len(message) < 300
    assert (api.pods(), members(api)) == (pods, "0-3"), "nothing is created, nobody shrinks"


def test_a_job_of_volcano_whose_least_size_is_only_its_own() -> None:
    """The default of a task's minAvailable is all of its replicas: nothing would vary."""
    raw = elastic()
    of_task(minAvailable=None)(raw)
    api = Api(nodes=1)
    api.apply(raw)
    api.settle()
    worker = api.status()["elastic"]["worker"]
    assert (worker["least"], worker["most"], worker["size"]) == (2, 12, 8)


def test_other_tasks_minimum_is_not_the_elastic_tasks() -> None:
    raw = elastic(arguments=["--task=worker"], minAvailable=3)
    of_task(minAvailable=None)(raw)
    raw["spec"]["tasks"].append({**raw["spec"]["tasks"][0], "name": "ps", "replicas": 1})
    api = Api(nodes=1)
    api.apply(raw)
    api.settle()
    assert api.status()["elastic"]["worker"]["least"] == 2


def test_a_volcano_manifest_with_min_available_0() -> None:
    """It counts as not given, as there."""
    api = Api(nodes=1)
    api.apply(elastic(minAvailable=0))
    api.settle()
    assert (api.phase(), members(api)) == ("Running", "0-7")
