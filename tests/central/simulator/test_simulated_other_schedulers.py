"""`lockstep simulate --yield-to-others`: elastic Jobs beside pending pods of another scheduler, which nobody binds
here."""

from typing import Any

import pytest

from tests.central.scheduler.elastic.test_autoscaler import elastic, machine
from tests.central.simulator.manifests import Simulate
from tests.experiments.elastic import simulate as play

Json = dict[str, Any]


def other(name: str, priority: int, at_s: int) -> Json:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"lockstep.dev/arrives-at": f"{at_s}s"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [container],
        },
        "status": {"conditions": [refused]},
    }


@pytest.mark.parametrize("yields", [True, False])
def test_surplus_leaves_for_them_with_the_flag(*, yields: bool) -> None:
    pods = [other("web-0", 5, 100), other("web-1", 5, 100), other("low", 0, 100)]
    run = play([machine(0), elastic("e", most=16), *pods], 300, yields=yields)
    found = [
        (one.at_s, one.members) for one in run.result.resized if "another scheduler" in one.reason
    ]
    assert found == ([(100.0, 6)] if yields else []), "once, for both of them"
    assert run.pods("default/e", 125) == (6 if yields else 8), "the room is kept"
    assert run.pods("default/e", 299) == 8, "nobody has used it"


def test_the_command_takes_the_flag(simulate: Simulate) -> None:
    objects = (machine(0), elastic("e", most=16), other("web-0", 5, 100))
    for flags, pods in (((), 8), (("--yield-to-others",), 9)):
        found = simulate(*objects, flags=(*flags, "--until", "300s"))
        assert len(found["placements"]) == pods, "one member left, and came back"
