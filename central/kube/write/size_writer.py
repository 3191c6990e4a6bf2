"""Sets the size of a controller's object, as the field manager lockstep-elastic. By server-side apply: the scale
subresource of Kubernetes' own kinds, the spec of batch Jobs and JobSets. By JSON patch: the scale subresource of
LeaderWorkerSets, because the API server cannot apply a Scale of a custom resource (it converts the Scale to the
resource's version, and fails); worker groups of a RayCluster, whose list has no keys to apply by.

Pods that are to leave first get the annotation that ReplicaSets go by, before the size is written; a RayCluster gets
their names with it. What the author of a manifest wrote is replaced. What a HorizontalPodAutoscaler writes is not: the
two would never agree.
"""

from typing import Any

from central.kube.resource_paths import BY_KIND, SIZED
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write.retrying import call, object_of, says_gone
from central.model.decisions import SetSize
from central.model.facts import Answered
from central.model.facts.elastic_facts import SIZED_KINDS

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MANAGER = "lockstep-elastic"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Kubernetes' controllers write sizes of objects for HorizontalPodAutoscalers only.
AUTOSCALER = "kube-controller-manager"
GONE = "the object is gone"
HEAD, TAIL = (
    200,
    100,
)  # characters of a long answer; between them JobSet's webhook has the whole template
GROUPS = "/spec/workerGroupSpecs"  # of a RayCluster


def write(client: Client, decision: SetSize) -> Answered:
    """Raises Retry."""
    resource = SIZED[decision.kind]
    path = resource.path(decision.namespace, decision.name)
    if decision.kind in _PATCHES:
        subresource, changes = _PATCHES[decision.kind]
        path += f"{subresource}?fieldManager={MANAGER}"
        reply = call(client, "PATCH", path, changes(decision), JSON_PATCH)
    else:
        for name, uid in decision.leaving:
            _mark(client, decision, name, uid)
        reply = _apply(client, decision, path)
    if reply.status == 409 and AUTOSCALER in _managers(reply):
        return failed(
            decision,
            f"a HorizontalPodAutoscaler writes {SIZED_KINDS[decision.kind].field}; delete it, or the annotation "
            "lockstep.dev/elastic-min",
            409,
        )
    if says_gone(reply, resource, decision.name):
        return failed(decision, GONE, 404)
    if not reply.ok:
        code = 0 if reply.status == 404 else reply.status
        return failed(decision, _sentence(decision, reply), code)
    if decision.kind in _SPECS:
        object_of(reply, resource, decision.name)
    return failed(decision, "")


def _apply(client: Client, decision: SetSize, path: str) -> Reply:
    """A HorizontalPodAutoscaler's conflict is the answer; others are overruled."""
    spec = _SPECS.get(decision.kind)
    body = spec(decision) if spec is not None else _scale(decision)
    path += "" if spec is not None else "/scale"
    reply = call(client, "PATCH", f"{path}?fieldManager={MANAGER}", body, APPLY)
    others = _managers(reply) if reply.status == 409 else ""
    if others and AUTOSCALER not in others:
        reply = call(client, "PATCH", f"{path}?fieldManager={MANAGER}&force=true", body, APPLY)
    return reply


def failed(decision: SetSize, why: str, code: int = 0) -> Answered:
    place = (decision.kind, decision.namespace, decision.name)
    return Answered(SetSize.__name__, *place, why=why, uid="" if why else decision.uid, code=code)


def _mark(client: Client, decision: SetSize, name: str, uid: str) -> None:
    """A pod that is gone needs no mark; without the mark another one leaves."""
    cost = {DELETION_COST: str(-decision.rank)}
    body = {"metadata": {"uid": uid, "annotations": cost}}
    path = BY_KIND["Pod"].path(decision.namespace, name)
    call(client, "PATCH", f"{path}/status", body, MERGE)  # which takes annotations, too


def _job(decision: SetSize) -> dict[str, Any]:
    return {**_object(decision), "spec": _parallelism(decision)}


def _jobset(decision: SetSize) -> dict[str, Any]:
    job = {"name": decision.role, "template": {"spec": _parallelism(decision)}}
    return {**_object(decision), "spec": {"replicatedJobs": [job]}}


_SPECS = {"Job": _job, "JobSet": _jobset}  # kinds without a scale subresource, which are applied


def _parallelism(decision: SetSize) -> dict[str, int]:
    spec = {"parallelism": decision.size}
    if decision.completions:
        spec["completions"] = decision.size
    return spec


def _worker_group(decision: SetSize) -> list[dict[str, Any]]:
    """A group that is not in its place any more, or another object of this name, fails a test, and nothing changes.
    Ray's own autoscaler sets replicas itself; but those who leave are no longer among them."""
    group = f"{GROUPS}/{decision.place}"
    names = [name for name, _ in decision.leaving]
    changes: list[dict[str, Any]] = [
        _same_object(decision),
        {"op": "test", "path": f"{group}/groupName", "value": decision.role},
        {"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": names}},
    ]
    if decision.ceiling:
        changes.append({"op": "add", "path": f"{group}/maxReplicas", "value": decision.size})
    if names or not decision.ceiling:
        changes.append({"op": "add", "path": f"{group}/replicas", "value": decision.size})
    return changes


def _groups(decision: SetSize) -> list[dict[str, Any]]:
    """Returns the patch of the Scale."""
    size = {"op": "add", "path": "/spec/replicas", "value": decision.size}
    return [_same_object(decision), size]


def _same_object(decision: SetSize) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/uid", "value": decision.uid}


# Kinds that are patched: the subresource, and the operations on it.
_PATCHES = {"RayCluster": ("", _worker_group), "LeaderWorkerSet": ("/scale", _groups)}


def _scale(decision: SetSize) -> dict[str, Any]:
    head = {**_object(decision), "apiVersion": "autoscaling/v1", "kind": "Scale"}
    return {**head, "spec": {"replicas": decision.size}}


def _object(decision: SetSize) -> dict[str, Any]:
    meta = {"name": decision.name, "namespace": decision.namespace, "uid": decision.uid}
    version = SIZED_KINDS[decision.kind].api_version
    return {"apiVersion": version, "kind": decision.kind, "metadata": meta}


def _managers(reply: Reply) -> str:
    """The messages that name who else manages the field; empty: it is another conflict."""
    causes = reply.error().details.get("causes") or ()
    return "; ".join(
        str(each.get("message"))
        for each in causes
        if isinstance(each, dict) and each.get("reason") == "FieldManagerConflict"
    )


def _sentence(decision: SetSize, reply: Reply) -> str:
    message = reply.error().message
    if len(message) > HEAD + TAIL:
        message = f"{message[:HEAD]} ... {message[-TAIL:]}"
    if reply.status == 403 and "is forbidden" in message:
        return f"{message}; components/elastic has the right"
    if decision.kind == "JobSet" and reply.status in (403, 422):
        needs = "JobSet 0.12 or newer with the feature gate ElasticJobSet"
        return f"JobSet's webhook refuses it; it needs {needs}: {message}"
    return message
