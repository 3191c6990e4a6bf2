"""The definitions in daemonset/crds: every field that the API's documentation names exists in them,
what contradicts itself is refused, and what is written for Volcano is not."""

from typing import Any

import pytest
import yaml

from central.kube import resource_paths
from central.standalone import schema
from tests.manifests.manifests import FOLDER, documents, shipped
from tests.manifests.spread import COPIES, spread

DEFINITIONS = {
    d["spec"]["names"]["kind"]: d for d in shipped() if d["kind"] == "CustomResourceDefinition"
}
# Kind: group, version, scope, short names, subresources.
BY_KIND: dict[str, tuple[str, str, str, list[str], set[str]]] = {
    "Job": ("batch.volcano.sh", "v1alpha1", "Namespaced", ["vcjob", "vj"], {"status", "scale"}),
    "CronJob": ("batch.volcano.sh", "v1alpha1", "Namespaced", ["cronvcjob", "cronvj"], {"status"}),
    "PodGroup": (
        *("scheduling.volcano.sh", "v1beta1", "Namespaced"),
        ["pg", "podgroup-v1beta1"],
        {"status"},
    ),
    "Queue": (*("scheduling.volcano.sh", "v1beta1", "Cluster"), ["q", "queue-v1beta1"], {"status"}),
    "Command": ("bus.volcano.sh", "v1alpha1", "Namespaced", [], set()),
    "JobFlow": ("flow.volcano.sh", "v1alpha1", "Namespaced", ["jf"], {"status"}),
    "JobTemplate": ("flow.volcano.sh", "v1alpha1", "Namespaced", ["jt"], {"status"}),
    "HyperNode": ("topology.volcano.sh", "v1alpha1", "Cluster", ["hn"], {"status"}),
}
TOPOLOGY = "networkTopology: mode highestTierAllowed highestTierName"
POLICIES = "policies[]: action event events exitCode timeout"
JOB_SPEC = f"""
spec: schedulerName minAvailable volumes tasks policies plugins runningEstimate queue maxRetry
spec: ttlSecondsAfterFinished priorityClassName minSuccess networkTopology
spec.{TOPOLOGY}
spec.{POLICIES}
spec.volumes[]: mountPath volumeClaimName volumeClaim
spec.tasks[]: name replicas minAvailable template policies topologyPolicy maxRetry dependsOn
spec.tasks[]: partitionPolicy
spec.tasks[].{POLICIES}
spec.tasks[].dependsOn: name iteration
spec.tasks[].partitionPolicy: totalPartitions partitionSize minPartitions networkTopology
spec.tasks[].partitionPolicy.{TOPOLOGY}
"""
# One line: a place, and the fields that the API's documentation names there.
DOCUMENTED = {
    "Job": f"""{JOB_SPEC}
status: state minAvailable taskStatusCount pending running succeeded failed terminating unknown
status: version retryCount runningDuration controlledResources conditions
status.state: phase reason message lastTransitionTime
status.taskStatusCount{{}}: phase
status.conditions[]: status lastTransitionTime
""",
    "CronJob": f"""
spec: schedule timeZone startingDeadlineSeconds concurrencyPolicy suspend jobTemplate
spec: successfulJobsHistoryLimit failedJobsHistoryLimit
spec.jobTemplate: metadata spec
{JOB_SPEC.replace("spec: ", "spec.jobTemplate.spec: ").replace("spec.", "spec.jobTemplate.spec.").replace("spec.jobTemplate.spec.jobTemplate.spec", "spec.jobTemplate.spec")}
status: active lastScheduleTime lastSuccessfulTime
status.active[]: apiVersion kind namespace name uid resourceVersion fieldPath
""",
    "JobTemplate": f"{JOB_SPEC}\nstatus: jobDependsOnList",
    "JobFlow": """
spec: flows jobRetainPolicy
spec.flows[]: name dependsOn patch
spec.flows[].patch: jobSpec
spec.flows[].dependsOn: targets probe
spec.flows[].dependsOn.probe: httpGetList tcpSocketList taskStatusList
spec.flows[].dependsOn.probe.httpGetList[]: taskName path port httpHeader
spec.flows[].dependsOn.probe.tcpSocketList[]: taskName port
spec.flows[].dependsOn.probe.taskStatusList[]: taskName phase
status: pendingJobs runningJobs failedJobs completedJobs terminatedJobs unKnowJobs jobStatusList
status: conditions state
status.state: phase
status.jobStatusList[]: name state startTimestamp endTimestamp restartCount runningHistories
status.conditions{}: phase createTime runningDuration taskStatusCount
""",
    "PodGroup": f"""
spec: minMember minTaskMember queue priorityClassName minResources networkTopology subGroupPolicy
spec.{TOPOLOGY}
spec.subGroupPolicy[]: name networkTopology subGroupSize minSubGroups labelSelector matchLabelKeys
spec.subGroupPolicy[].{TOPOLOGY}
spec.subGroupPolicy[].labelSelector: matchLabels matchExpressions
status: phase conditions running succeeded failed
status.conditions[]: type status transitionID lastTransitionTime reason message
""",
    "Queue": """
spec: weight capability reclaimable extendClusters guarantee affinity type parent deserved priority
spec: dequeueStrategy
spec.extendClusters[]: name weight capacity
spec.guarantee: resource
spec.affinity: nodeGroupAffinity nodeGroupAntiAffinity
status: state unknown pending running inqueue completed reservation allocated
status.reservation: nodes resource
""",
    "Command": """
: action target reason message
target: apiVersion kind name uid controller blockOwnerDeletion
""",
    "HyperNode": """
spec: tier tierName members
spec.members[]: type selector
spec.members[].selector: exactMatch regexMatch labelMatch
spec.members[].selector.exactMatch: name
spec.members[].selector.regexMatch: pattern
spec.members[].selector.labelMatch: matchLabels matchExpressions
status: conditions nodeCount
""",
}
ENUMS = {
    ("Job", "spec.policies[].event"): "* PodFailed PodEvicted PodPending Unknown TaskCompleted TaskFailed JobUpdated",
    ("Job", "spec.policies[].events[]"): "* PodFailed PodEvicted PodPending Unknown TaskCompleted TaskFailed JobUpdated",
    ("Job", "spec.policies[].action"): "AbortJob RestartJob RestartTask RestartPod RestartPartition TerminateJob CompleteJob ResumeJob",
    ("Job", "spec.tasks[].topologyPolicy"): "none best-effort restricted single-numa-node",
    ("Job", "spec.tasks[].dependsOn.iteration"): "any all",
    ("Job", "spec.networkTopology.mode"): "hard soft",
    ("Job", "status.state.phase"): "Pending Aborting Aborted Running Restarting Completing Completed Terminating Terminated Failed",
    ("CronJob", "spec.concurrencyPolicy"): "Allow Forbid Replace",
    ("JobFlow", "spec.jobRetainPolicy"): "retain delete",
    ("JobFlow", "status.state.phase"): "Succeed Terminating Failed Running Pending",
    ("PodGroup", "status.phase"): "Pending Inqueue Running Unknown Completed",
    ("Queue", "spec.dequeueStrategy"): "fifo traverse",
    ("Queue", "status.state"): "Open Closed Closing Unknown",
    ("HyperNode", "spec.members[].type"): "Node HyperNode",
}  # fmt: skip
DEFAULTS = {
    ("Job", "spec.queue"): "default",
    ("Job", "spec.maxRetry"): 3,
    ("Job", "spec.networkTopology.mode"): "hard",
    ("Job", "spec.tasks[].partitionPolicy.minPartitions"): 0,
    ("CronJob", "spec.jobTemplate.spec.maxRetry"): 3,
    ("CronJob", "spec.concurrencyPolicy"): "Allow",
    ("CronJob", "spec.suspend"): False,
    ("CronJob", "spec.successfulJobsHistoryLimit"): 3,
    ("CronJob", "spec.failedJobsHistoryLimit"): 1,
    ("PodGroup", "spec.queue"): "default",
    ("PodGroup", "spec.subGroupPolicy[].subGroupSize"): 1,
    ("PodGroup", "spec.subGroupPolicy[].minSubGroups"): 0,
    ("Queue", "spec.weight"): 1,
}


def version(kind: str) -> Any:
    (found,) = DEFINITIONS[kind]["spec"]["versions"]
    return found


def at(kind: str, path: str) -> Any:
    """The schema at a path: [] goes into a list, {} into a map."""
    found = version(kind)["schema"]["openAPIV3Schema"]
    for step in filter(None, path.split(".")):
        name = step.rstrip("[]{}")
        found = found["properties"][name]
        if step.endswith("[]"):
            found = found["items"]
        if step.endswith("{}"):
            found = found["additionalProperties"]
    return found


def test_who_calls_the_api_has_the_same_names() -> None:
    for kind, definition in DEFINITIONS.items():
        spec, place = definition["spec"], resource_paths.BY_KIND[kind]
        assert (place.group, place.plural) == (spec["group"], spec["names"]["plural"])
        assert place.version in {version["name"] for version in spec["versions"]}
        assert place.namespaced == (spec["scope"] == "Namespaced")


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_every_documented_field_exists(kind: str) -> None:
    for line in filter(None, map(str.strip, DOCUMENTED[kind].splitlines())):
        path, _, fields = line.partition(":")
        known = at(kind, path)["properties"]
        assert set(fields.split()) <= set(known), f"{kind}.{path}"
        assert all("type" in one or "x-kubernetes-int-or-string" in one for one in known.values())


@pytest.mark.parametrize("kind", BY_KIND)
def test_names_scopes_and_subresources(kind: str) -> None:
    spec = DEFINITIONS[kind]["spec"]
    group, name, scope, short, subresources = BY_KIND[kind]
    assert (spec["group"], version(kind)["name"], spec["scope"]) == (group, name, scope)
    assert spec["names"].get("shortNames", []) == short
    assert set(version(kind).get("subresources", ())) >= subresources
    assert DEFINITIONS[kind]["metadata"]["name"] == f"{spec['names']['plural']}.{group}"


def test_the_scale_of_a_job_is_that_of_its_last_task() -> None:
    scale = version("Job")["subresources"]["scale"]
    for path in scale.values():
        at("Job", path.strip("."))  # it exists: what does not is dropped


def test_enums_and_defaults() -> None:
    for (kind, path), words in ENUMS.items():
        assert set(at(kind, path)["enum"]) == set(words.split()), path
    for (kind, path), value in DEFAULTS.items():
        assert at(kind, path)["default"] == value, path


def test_what_is_printed() -> None:
    columns = [(c["name"], c["jsonPath"]) for c in version("Job")["additionalPrinterColumns"]]
    assert columns[:4] == [
        ("STATUS", ".status.state.phase"),
        ("minAvailable", ".status.minAvailable"),
        ("RUNNINGS", ".status.running"),
        ("AGE", ".metadata.creationTimestamp"),
    ]
    for kind in DEFINITIONS:
        for column in version(kind).get("additionalPrinterColumns", ()):
            path = column["jsonPath"].strip(".").replace("[-1:]", "[]")
            if not path.startswith("metadata"):
                at(kind, path)  # it exists


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_schemas_are_structural(kind: str) -> None:
    """What the API server demands of a schema, as far as it is easily got wrong."""

    def walk(one: Any, path: str) -> None:
        assert "type" in one or "x-kubernetes-int-or-string" in one, path
        assert "additionalProperties" not in one or "properties" not in one, path
        assert not {"$ref", "definitions", "uniqueItems"} & one.keys(), path
        for word in ("oneOf", "anyOf", "allOf"):
            for part in one.get(word, ()):
                if "x-kubernetes-int-or-string" not in one:
                    assert not {"type", "default", "description", "nullable"} & part.keys(), path
        for name, child in one.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        for word in ("items", "additionalProperties"):
            if word in one:
                walk(one[word], f"{path}.{word}")
        if "default" in one:
            assert not list(schema.faults(one, one["default"])), path

    walk(version(kind)["schema"]["openAPIV3Schema"], kind)


@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.name)
def test_the_spec_of_a_job_is_the_same_everywhere(path: Any) -> None:
    assert path.read_text() == spread(path.read_text()), "python -m tests.manifests.spread"


# --- whole objects


def checked(manifest: Any) -> tuple[Any, list[str]]:
    """The object as stored, and what is wrong with it."""
    served = version(manifest["kind"])["schema"]["openAPIV3Schema"]
    stored = schema.prune(served, manifest)
    return stored, [field for field, _ in schema.faults(served, stored)]


def job(**spec: Any) -> Any:
    task = {"name": "a", "replicas": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
    return {"kind": "Job", "metadata": {"name": "j"}, "spec": {"tasks": [task], **spec}}


def task(**more: Any) -> Any:
    (one,) = job()["spec"]["tasks"]
    return job(tasks=[one | more])


POLICY = {"action": "RestartJob"}


@pytest.mark.parametrize(
    "good",
    [
        job(),
        job(plugins={"env": [], "ssh": None, "svc": ["--publish-not-ready-addresses"]}),
        job(policies=[{**POLICY, "event": "PodEvicted"}, {**POLICY, "events": ["PodFailed"]}]),
        job(policies=[{**POLICY, "exitCode": 137}, {**POLICY, "event": "*", "timeout": "1h30m"}]),
        job(volumes=[{"mountPath": "/data", "volumeClaimName": "x"}]),
        job(volumes=[{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]),
        job(networkTopology={"mode": "soft"}, runningEstimate="90m", minSuccess=1),
        task(dependsOn={"name": ["b"]}, maxRetry=-1, topologyPolicy="single-numa-node"),
        task(partitionPolicy={"totalPartitions": 2, "partitionSize": 4}),
    ],
    ids=str,
)
def test_what_is_right_is_taken(good: Any) -> None:
    stored, wrong = checked(good)
    assert not wrong
    assert stored["spec"].items() >= {**good["spec"], "tasks": stored["spec"]["tasks"]}.items()


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (job(tasks=[]), "spec.tasks"),
        (job(minAvailable=-1), "spec.minAvailable"),
        (job(minSuccess=0), "spec.minSuccess"),
        (job(queue="Not A Queue"), "spec.queue"),
        (job(runningEstimate="soon"), "spec.runningEstimate"),
        (job(policies=[POLICY]), "spec.policies[0]"),
        (job(policies=[{**POLICY, "event": "PodFailed", "exitCode": 1}]), "spec.policies[0]"),
        (job(policies=[{**POLICY, "exitCode": 0}]), "spec.policies[0].exitCode"),
        (job(policies=[{**POLICY, "event": "Fire"}]), "spec.policies[0].event"),
        (job(policies=[{"action": "Dance", "event": "*"}]), "spec.policies[0].action"),
        (job(volumes=[{"mountPath": "/a"}]), "spec.volumes[0]"),
        (job(volumes=[{"mountPath": "a:b", "volumeClaimName": "c"}]), "spec.volumes[0].mountPath"),
        (
            job(networkTopology={"highestTierAllowed": 1, "highestTierName": "x"}),
            "spec.networkTopology",
        ),
        (task(name="Upper"), "spec.tasks[0].name"),
        (task(template={"spec": {}}), "spec.tasks[0].template.spec.containers"),
        (task(maxRetry=-2), "spec.tasks[0].maxRetry"),
        (task(dependsOn={"name": []}), "spec.tasks[0].dependsOn.name"),
        (
            task(partitionPolicy={"totalPartitions": 2}),
            "spec.tasks[0].partitionPolicy.partitionSize",
        ),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(bad: Any, field: str) -> None:
    assert checked(bad)[1] == [field]


def test_a_template_keeps_fields_that_we_do_not_know() -> None:
    """Pod templates are those of whatever Kubernetes it is."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "resizePolicy": [{"x": 1}]}], "later": True},
    }
    stored, wrong = checked(task(template=template))
    assert not wrong
    assert stored["spec"]["tasks"][0]["template"] == template


def test_cronjobs_of_long_names_and_time_zones_in_schedules() -> None:
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job()["spec"]}}
    cron = {"kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}
    stored, wrong = checked(cron)
    assert not wrong
    assert stored["spec"]["jobTemplate"]["spec"]["maxRetry"] == 3
    spec["schedule"] = "CRON_TZ=UTC * * * * *"
    assert checked(cron)[1] == ["spec.schedule"]
    names = at("CronJob", "metadata")["properties"]["name"]
    assert names["maxLength"] == 52


def test_commands() -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "1"}
    command = {"kind": "Command", "metadata": {"name": "c"}, "action": "AbortJob", "target": target}
    assert checked(command) == (command, [])
    assert checked({**command, "action": "SyncJob"})[1] == ["action"]
    assert checked({**command, "target": {"kind": "Pod", "name": "p"}})[1] == ["target.kind"]


@pytest.mark.parametrize("path", sorted((FOLDER / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_lose_nothing(path: Any) -> None:
    for document in documents(path):
        if document["kind"] in DEFINITIONS and "volcano" in document["apiVersion"]:
            stored, wrong = checked(document)
            assert not wrong
            assert _within(document, stored), yaml.safe_dump(stored)


def _within(given: Any, stored: Any) -> bool:
    if isinstance(given, dict):
        return all(key in stored and _within(value, stored[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(stored) and all(map(_within, given, stored))
    return bool(given == stored)
