"""Sets the size of a controller's object by server-side apply, as the field manager lockstep-elastic: of a batch Job its
spec.parallelism, of others the scale subresource.

Pods that are to leave first get the annotation that ReplicaSets go by, before the size is written. What the author
of a manifest wrote is replaced. What a HorizontalPodAutoscaler writes is not: the two would never agree.
"""

from typing import Any

from central.kube.resource_paths import BY_GROUP_KIND, BY_KIND, ResourcePath
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write.retrying import call, object_of, says_gone
from central.model.decisions import SetSize
from central.model.facts import Answered

APPLY = "application/apply-patch+yaml"
MANAGER = "lockstep-elastic"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Kubernetes' controllers write sizes of objects for HorizontalPodAutoscalers only.
AUTOSCALER = "kube-controller-manager"
GONE = "the object is gone"


def write(client: Client, decision: SetSize) -> Answered:
    """Raises Retry."""
    for name, uid in decision.leaving:
        _mark(client, decision, name, uid)
    resource = resource_of(decision.kind)
    path = resource.path(decision.namespace, decision.name)
    body = _job(decision) if decision.kind == "Job" else _scale(decision)
    path += "" if decision.kind == "Job" else "/scale"
    reply = call(client, "PATCH", f"{path}?fieldManager={MANAGER}", body, APPLY)
    if reply.status == 409 and (others := _managers(reply)):
        if AUTOSCALER in others:
            where = "spec.parallelism" if decision.kind == "Job" else "spec.replicas"
            return failed(
                decision,
                f"a HorizontalPodAutoscaler writes {where}; delete it, or the annotation lockstep.dev/elastic-min",
                409,
            )
        reply = call(client, "PATCH", f"{path}?fieldManager={MANAGER}&force=true", body, APPLY)
    if says_gone(reply, resource, decision.name):
        return failed(decision, GONE, 404)
    if not reply.ok:
        return failed(
            decision, _sentence(decision, reply), 0 if reply.status == 404 else reply.status
        )
    if decision.kind == "Job":
        object_of(reply, resource, decision.name)
    return failed(decision, "")


def resource_of(kind: str) -> ResourcePath:
    return BY_GROUP_KIND["batch" if kind == "Job" else "apps", kind]


def failed(decision: SetSize, why: str, code: int = 0) -> Answered:
    place = (decision.kind, decision.namespace, decision.name)
    return Answered(SetSize.__name__, *place, why=why, uid="" if why else decision.uid, code=code)


def _mark(client: Client, decision: SetSize, name: str, uid: str) -> None:
    """A pod that is gone is no matter, and without the mark another one leaves."""
    cost = {DELETION_COST: str(-decision.rank)}
    body = {"metadata": {"uid": uid, "annotations": cost}}
    call(client, "PATCH", BY_KIND["Pod"].path(decision.namespace, name), body, MERGE)


def _job(decision: SetSize) -> dict[str, Any]:
    spec = {"parallelism": decision.size}
    if decision.completions:
        spec["completions"] = decision.size
    return {**_object(decision, "batch/v1", "Job"), "spec": spec}


def _scale(decision: SetSize) -> dict[str, Any]:
    return {**_object(decision, "autoscaling/v1", "Scale"), "spec": {"replicas": decision.size}}


def _object(decision: SetSize, version: str, kind: str) -> dict[str, Any]:
    meta = {"name": decision.name, "namespace": decision.namespace, "uid": decision.uid}
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _managers(reply: Reply) -> str:
    """The messages that name who else manages the field; empty: it is another conflict."""
    causes = reply.error().details.get("causes") or ()
    return "; ".join(
        str(each.get("message"))
        for each in causes
        if isinstance(each, dict) and each.get("reason") == "FieldManagerConflict"
    )


def _sentence(decision: SetSize, reply: Reply) -> str:
    if reply.status == 403:
        return f"{reply.error().message}; components/elastic has the right"
    return reply.error().message
