"""NVSentinel's preflight finds the gangs of Jobs by its published rule (NVIDIA/NVSentinel,
preflight/pkg/gang/discoverer/podgroup.go): an annotation of the pod names a PodGroup of its namespace, an expression
gives the number to wait for, and the peers are the pods with the same name that are pending or running."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.central.controllers.job.job_api import Api, job
from tests.central.controllers.job.test_elastic import elastic

PAGE = Path(__file__).parents[4] / "docs/concepts/gpu-health.md"
Json = dict[str, Any]


def configured() -> Json:
    """The configuration of NVSentinel that our page shows."""
    (text,) = re.findall(r"```yaml\n(gangDiscovery:.*?)```", PAGE.read_text(), re.DOTALL)
    found: Json = yaml.safe_load(text)["gangDiscovery"]
    return found


def gang(api: Api, pod: Json, rule: Json) -> tuple[int, set[str]]:
    """The number of members to wait for, and the peers."""

    def named(one: Json) -> str:
        given = one["metadata"].get("annotations") or {}
        return next((given[key] for key in rule["annotationKeys"] if given.get(key)), "")

    group = api.there["PodGroup", named(pod)]
    assert group["metadata"]["namespace"] == pod["metadata"]["namespace"]
    value: Any = {"podGroup": group}
    for part in rule["minCountExpr"].split("."):
        value = value[part]
    pods = [one for (kind, _), one in api.there.items() if kind == "Pod"]
    alive = [one for one in pods if one["status"]["phase"] in ("Pending", "Running")]
    return value, {one["metadata"]["name"] for one in alive if named(one) == named(pod)}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fixed", "elastic"])
def test_each_pod_leads_to_its_gang(kind: str) -> None:
    api = Api(nodes=2)
    api.apply(
        job({"worker": 3}, name="a") if kind == "fixed" else elastic(least=2, most=4, name="a")
    )
    api.apply(job({"worker": 2}, name="b"))
    api.settle()
    mine = {name for name in api.pods() if name.startswith("a-")}
    assert len(mine) >= 3
    for name in mine:
        count, peers = gang(api, api.there["Pod", name], configured())
        assert peers == mine
        assert 2 <= count <= len(mine)
