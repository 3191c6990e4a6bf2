"""The CRDs refuse what the decoders refuse: the limits of central.model.limits."""

from typing import Any

import pytest

from central.model import limits
from tests.manifests.test_definitions import DEFINITIONS

R, N = limits.REPLICAS, limits.NAME
JOB = {
    "minAvailable": R, "minSuccess": R, "replicas": R, "runningEstimate": limits.AMOUNT_TEXT,
    "plugins": limits.PLUGINS, "plugins{}": limits.ARGUMENTS, "volumes": limits.VOLUMES,
    "policies": limits.POLICIES, "policies[].events": limits.POLICIES, "tasks": limits.TASKS,
    "tasks[].replicas": R, "tasks[].minAvailable": R, "tasks[].policies": limits.POLICIES,
    "tasks[].dependsOn.name": limits.TASKS, "tasks[].partitionPolicy.totalPartitions": R,
    "tasks[].partitionPolicy.partitionSize": R, "queue": N, "priorityClassName": N,
}  # fmt: skip
EXPECTED: dict[str, dict[str, int]] = {
    "Job": {f"spec.{path}": most for path, most in JOB.items()},
    "JobTemplate": {f"spec.{path}": most for path, most in JOB.items()},
    "CronJob": {
        **{f"spec.jobTemplate.spec.{path}": most for path, most in JOB.items()},
        "spec.schedule": limits.SCHEDULE, "spec.timeZone": limits.SCHEDULE,
    },
    "PodGroup": {
        "spec.minMember": R, "spec.minTaskMember": limits.TASKS, "spec.minTaskMember{}": R,
        "spec.minResources": limits.RESOURCES, "spec.subGroupPolicy": limits.SUBGROUPS,
        "spec.subGroupPolicy[].subGroupSize": R, "spec.subGroupPolicy[].minSubGroups": R,
        "spec.subGroupPolicy[].matchLabelKeys": limits.OWNERS,
        "spec.subGroupPolicy[].labelSelector.matchLabels": limits.SELECTOR,
        "spec.subGroupPolicy[].labelSelector.matchExpressions": limits.EXPRESSIONS,
        "spec.subGroupPolicy[].labelSelector.matchExpressions[].values": limits.VALUES,
    },
    "JobFlow": {
        "spec.flows": limits.STEPS, "spec.flows[].name": N, "spec.flows[].dependsOn.targets": limits.STEPS,
        "spec.flows[].dependsOn.probe.httpGetList": limits.STEPS,
        "spec.flows[].dependsOn.probe.tcpSocketList": limits.STEPS,
        "spec.flows[].dependsOn.probe.taskStatusList": limits.STEPS,
    },
    "Queue": {"spec.capability": limits.RESOURCES, "spec.deserved": limits.RESOURCES},
    "HyperNode": {
        "spec.tier": limits.TIER, "spec.members": limits.MEMBERS,
        "spec.members[].selector.regexMatch.pattern": limits.PATTERN,
    },
    "Command": {"target.name": N, "reason": limits.TEXT, "message": limits.TEXT},
}  # fmt: skip
MAXIMA = ("maximum", "maxItems", "maxProperties", "maxLength")


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for part in path.split("."):
        name = part.rstrip("[]{}")
        schema = schema["properties"][name]
        for bracket in part[len(name) :: 2]:
            schema = schema["items" if bracket == "[" else "additionalProperties"]
    return schema


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in EXPECTED.items() for path in paths]
)
def test_the_crd_has_the_limit_of_the_decoder(kind: str, path: str) -> None:
    schema = DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = at(schema, path)
    assert [found[key] for key in MAXIMA if key in found] == [EXPECTED[kind][path]]
