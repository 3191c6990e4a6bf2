"""What a tenant may write, as objects that belong together: raw, valid, and alike for both tenants but for their
names."""

import json
from collections.abc import Callable
from copy import deepcopy

from central.model.json_types import Json
from protos import names
from tests.central.kube import controller_fixtures
from tests.central.kube.raw_objects import container
from tests.central.poison import corpus
from tests.central.poison.by_field.examples import watched
from tests.central.poison.by_field.job_examples import ELASTIC_NOTES
from tests.central.poison.tenants.two_tenants import Tenant, Written

Bundle = Callable[[], list[Written]]
SPACE, NAME = "SPACE", "NAME"  # stand for the tenant's namespace, and a name of its own
PRIORITIES = {"low": -5, "high": 50}


def _meta(name: str = NAME, **more: object) -> Json:
    found: Json = {"name": name, "namespace": SPACE, "uid": f"u-{SPACE}-{name}"}
    return found | {"labels": {"app": NAME}, "annotations": {}, **more}


def _pod(number: int = 0, gpus: int = 8, **more: object) -> Json:
    spec = {
        "schedulerName": "lockstep",
        "priority": 0,
        "serviceAccountName": NAME,
        "nodeSelector": {},
        "containers": [container(gpu=gpus)],
        **{key: value for key, value in more.items() if key not in ("annotations", "labels")},
    }
    meta = _meta(f"{NAME}-{number}")
    for key in ("annotations", "labels"):
        meta[key] = {**meta[key], **(more.get(key) or {})}  # type: ignore[dict-item]  # a part of raw JSON
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def single_pod() -> list[Written]:
    return [("pods", _pod())]


def big_pod() -> list[Written]:
    return [("pods", _pod(gpus=16))]


def pods_with_group() -> list[Written]:
    spec = {"minMember": 2, "queue": "", "priorityClassName": "", "minTaskMember": {}}
    group = {"metadata": _meta(), "spec": spec, "status": {}}
    pods = [_pod(n, annotations={names.GROUP_NAMES[0]: NAME}) for n in range(2)]
    return [(corpus.GROUPS, group), *(("pods", pod) for pod in pods)]


def group_of_a_controller() -> list[Written]:
    (kind, group), *pods = pods_with_group()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": f"u-{NAME}"}
    group["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return [(kind, group), *pods]


def group_of_an_odd_owner() -> list[Written]:
    """Owner references may have any kind and name."""
    (kind, group), *pods = group_of_a_controller()
    group["metadata"]["ownerReferences"][0] |= {"kind": f"See {NAME}", "name": f"Visit {NAME} now"}
    return [(kind, group), *pods]


def driver() -> list[Written]:
    """It creates pods later, for which its group keeps capacity."""
    (kind, group), pod, _ = pods_with_group()
    group["spec"] |= {"minMember": 1, "minResources": {names.GPU: "10"}}
    pod[1]["spec"]["containers"] = [container(gpu=1)]
    return [(kind, group), pod]


def group_without_pods() -> list[Written]:
    spec = {"minMember": 2, "minResources": {names.GPU: "4"}, "queue": ""}
    return [(corpus.GROUPS, {"metadata": _meta(), "spec": spec, "status": {}})]


def group_by_label() -> list[Written]:
    notes = {names.GANG_MIN: "2", names.RUNS_FOR: "1h"}
    return [("pods", _pod(n, labels={names.GANG_LABEL: NAME}, annotations=notes)) for n in range(2)]


def group_by_an_odd_label() -> list[Written]:
    label, notes = {names.GANG_LABEL: f"Gang_{NAME}.X"}, {names.GANG_MIN: "2"}
    return [("pods", _pod(n, labels=label, annotations=notes)) for n in range(2)]


def suspendable() -> list[Written]:
    return [("pods", _pod(annotations={names.SUSPENDABLE: "10s", names.COOLDOWN: "5s"}))]


def movable() -> list[Written]:
    return [("pods", _pod(gpus=3, annotations={names.MOVABLE: "true"}))]


def missing_group() -> list[Written]:
    return [("pods", _pod(n, annotations={names.GROUP_NAMES[1]: NAME})) for n in range(2)]


def deployment() -> list[Written]:
    above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME, "uid": f"u-{NAME}"}
    notes = {names.GANG_MIN: "2", names.TOPOLOGY_REQUIRED: names.RACK, names.QUEUE_NAME: "default"}
    meta = _meta(f"{NAME}-rs", ownerReferences=[{**above, "controller": True}], annotations=notes)
    own = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": meta["uid"]}
    pods = [_pod(n) for n in range(2)]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [{**own, "controller": True}]
    return [("replicasets.apps", {"metadata": meta}), *(("pods", pod) for pod in pods)]


def pod_with_claim() -> list[Written]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": NAME}}
    spec = {
        "storageClassName": "waits",
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"metadata": _meta(), "spec": spec, "status": {"phase": "Pending"}}
    return [("persistentvolumeclaims", claim), ("pods", _pod(gpus=1, volumes=[volume]))]


def pod_with_rules() -> list[Written]:
    peers = {"labelSelector": {"matchLabels": {"app": NAME}}, "topologyKey": names.RACK}
    affinity = {"podAntiAffinity": {corpus.REQUIRED: [peers]}}
    spread = [{**peers, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    pods = [_pod(n, 1, affinity=affinity, topologySpreadConstraints=spread) for n in range(2)]
    return [("pods", pod) for pod in pods]


def pod_with_conditions() -> list[Written]:
    """Of the node, by labels, amounts and GPU model."""
    amounts = {"requests": {"cpu": "1", names.GPU: "1", "example.com/dongle": "1"}}
    notes = {names.GPU_MODEL: "H100,*A100*", names.GPU_LEAST: "40Gi"}
    main = {"name": "main", "image": "x", "resources": amounts}
    tolerations = [{"key": "k", "operator": "Equal", "value": "v"}]
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    near = {"nodeAffinity": {corpus.REQUIRED: {"nodeSelectorTerms": [term]}}}
    pod = _pod(containers=[main], annotations=notes, affinity=near, tolerations=tolerations)
    pod["spec"]["nodeSelector"] = {"pool": "a"}
    return [("pods", pod)]


def running_pod_with_budget() -> list[Written]:
    pod = _pod(nodeName="n0", priority=-10, annotations={names.MOVABLE: "false"})
    pod["status"] |= {"phase": "Running"}
    budget = {
        "metadata": _meta(generation=1),
        "spec": {"selector": {"matchLabels": {"app": NAME}}},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    return [("poddisruptionbudgets.policy", budget), ("pods", pod)]


def urgent_pod() -> list[Written]:
    return [("pods", _pod(priority=50))]


def pod_of_another_scheduler() -> list[Written]:
    pod = _pod(gpus=1, nodeName="n1")
    pod["spec"]["schedulerName"] = "default-scheduler"
    pod["status"] |= {"phase": "Running"}
    return [("pods", pod)]


def _task(name: str = "worker", replicas: int = 2, **more: object) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container(gpu=8)]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def _job_spec(**more: object) -> Json:
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    found = {"minAvailable": 2, "schedulerName": "lockstep", "queue": "default", "tasks": [_task()]}
    return {**found, "policies": policies, "plugins": {"env": [], "svc": []}, **more}


def job() -> list[Written]:
    return [(corpus.JOBS, {"metadata": _meta(), "spec": _job_spec(), "status": {}})]


def job_in_a_queue() -> list[Written]:
    spec = _job_spec(queue="q", priorityClassName="low")
    return [(corpus.JOBS, {"metadata": _meta(), "spec": spec, "status": {}})]


def elastic_job() -> list[Written]:
    notes = {
        key: value
        for key, value in ELASTIC_NOTES.items()
        if "elastic" not in key and key not in (names.WORK_LEFT, names.SPEED)
    }
    one = {"metadata": {}, "spec": {"containers": [container(gpu=4)]}}
    tasks = [_task(replicas=4, minAvailable=1, template=one)]
    plugins = {"elastic": ["--task=worker", "--hold=10s"], "svc": []}
    spec = _job_spec(tasks=tasks, plugins=plugins, minAvailable=1)
    return [(corpus.JOBS, {"metadata": _meta(annotations=notes), "spec": spec, "status": {}})]


def cron_job() -> list[Written]:
    spec = {"schedule": "* * * * *", "timeZone": "UTC", "jobTemplate": {"spec": _job_spec()}}
    return [(corpus.CRONS, {"metadata": _meta(), "spec": spec, "status": {}})]


def job_flow() -> list[Written]:
    flows = [{"name": NAME}, {"name": f"{NAME}-b", "dependsOn": {"targets": [NAME]}}]
    template = {"metadata": _meta(), "spec": _job_spec(), "status": {}}
    flow = {
        "metadata": _meta(f"{NAME}-flow"),
        "spec": {"flows": flows, "jobRetainPolicy": "retain"},
        "status": {},
    }
    return [(corpus.TEMPLATES, template), (corpus.FLOWS, flow)]


def command() -> list[Written]:
    (kind, target), *_ = job()
    of = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": NAME}
    found = {"metadata": _meta(f"{NAME}-c"), "target": of | {"uid": target["metadata"]["uid"]}}
    told = {"action": "AbortJob", "reason": "r", "message": "m"}
    return [(kind, target), ("commands.bus.volcano.sh", found | told)]


def native_group() -> list[Written]:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "high"}
    notes = {names.QUEUE_NAME: "default", names.TOPOLOGY_REQUIRED: names.RACK}
    group = {"metadata": _meta(annotations=notes), "spec": spec, "status": {}}
    pods = [_pod(n, schedulingGroup={"podGroupName": NAME}) for n in range(2)]
    return [("podgroups.scheduling.k8s.io", group), *(("pods", pod) for pod in pods)]


def _played(kind: str) -> Bundle:
    def made() -> list[Written]:
        one = controller_fixtures.PLAYED[kind]
        group = str(one.object["apiVersion"]).partition("/")[0]
        raws = [(f"{kind.lower()}s.{group}", one.object), *(("pods", pod) for pod in one.pods)]
        given = one.object["metadata"]["name"]
        text = json.dumps(raws).replace(f'"{controller_fixtures.SPACE}"', f'"{SPACE}"')
        for before in (f'"{given}"', f'"{given}-', f'"uid-{given}', f'-{given}"'):
            text = text.replace(before, before.replace(given, NAME))
        text = text.replace('"uid": "uid-', f'"uid": "u-{SPACE}-')
        return [(each, raw) for each, raw in json.loads(text)]

    return made


def rich(kind: str, number: int) -> Bundle:
    """An example of the kind with every field, alone."""

    def made() -> list[Written]:
        one = next(each for each in watched() if each.name == kind)
        raw = deepcopy(one.examples[number]())
        meta = raw["metadata"]
        meta |= {"namespace": SPACE, "name": NAME, "uid": f"u-{SPACE}-{NAME}"}
        raw.setdefault("spec", {}).pop("nodeName", None)
        return [(one.kind.resource.full_name, raw)]

    return made


CLUSTER = {  # kinds that no tenant writes
    "namespaces", "nodes", "queues", "hypernodes", "priorityclasses", "persistentvolumes", "storageclasses", "csinodes",
    "csidrivers", "csistoragecapacities", "deviceclasses", "resourceslices",
    "devicetaintrules",
}  # fmt: skip
RICH = tuple(
    (one.name, number)
    for one in watched()
    if one.kind.resource.full_name.partition(".")[0] not in CLUSTER and " " not in one.name
    for number in range(len(one.examples))
)
BUNDLES: dict[str, Bundle] = {
    made.__name__: made
    for made in (
        single_pod, big_pod, pods_with_group, group_of_a_controller, group_of_an_odd_owner, driver, group_without_pods,
        group_by_label, group_by_an_odd_label, suspendable, movable, missing_group, deployment, pod_with_claim,
        pod_with_rules, pod_with_conditions, running_pod_with_budget, urgent_pod, pod_of_another_scheduler, job,
        job_in_a_queue, elastic_job, cron_job, job_flow, command, native_group,
    )
}  # fmt: skip
BUNDLES |= {kind: _played(kind) for kind in controller_fixtures.PLAYED}


def owned(bundle: list[Written], tenant: Tenant, name: str) -> list[Written]:
    """The objects as the tenant's, with this name."""
    text = json.dumps(bundle).replace(SPACE, tenant.space).replace(NAME, name)
    return [(kind, raw) for kind, raw in json.loads(text)]
