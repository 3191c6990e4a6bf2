"""Objects that `lockstep doctor` reads, with the caller's own rights. Nothing is written; reviews of rights are
answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from central.cli import object_pages
from central.kube.decode.api_kinds import job_kinds, kinds
from central.kube.decode.decoder import Decoder
from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.access_review import AccessReviewer, AccessUnknown
from central.kube.transport.http_client import Client, StatusError
from central.model.identity import Identity
from central.model.json_types import Json
from protos.names import CA_CONFIG_MAP, CENTRAL_ACCOUNT

MOST = 20_000  # objects of one kind
KINDS: Mapping[str, ResourcePath] = {
    "CustomResourceDefinition": ResourcePath(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    ),
    "Deployment": ResourcePath("apps", "v1", "Deployment", "deployments"),
    "DaemonSet": ResourcePath("apps", "v1", "DaemonSet", "daemonsets"),
    "RuntimeClass": ResourcePath(
        "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False
    ),
    "Node": BY_KIND["Node"],
    "Pod": BY_KIND["Pod"],
    "Queue": BY_KIND["Queue"],
    "PodGroup": BY_KIND["PodGroup"],
}
WRITES = (  # of the scheduler; the Job controller's rights may be bound in some namespaces only
    ("create", "pods/binding"),
    ("create", "pods/eviction"),
    ("delete", "pods"),
    ("patch", "pods/status"),
    ("patch", "podgroups/status.scheduling.volcano.sh"),
    ("patch", "queues/status.scheduling.volcano.sh"),
    ("patch", "resourceclaims/status.resource.k8s.io"),
    ("create", "events"),
    ("create", "tokenreviews.authentication.k8s.io"),
    ("create", "subjectaccessreviews.authorization.k8s.io"),
)
INSTALLED = ("CustomResourceDefinition", "Deployment", "DaemonSet", "ConfigMap", "Lease")
LOCAL = "-lockstep"  # ends the version of the API server of `lockstep demo`
ASK = "; ask an administrator"
OWN_RIGHTS = (("create", "jobs.batch.volcano.sh"), ("list", "podgroups.scheduling.volcano.sh"))


@dataclass(frozen=True, slots=True)
class Installation:
    """Objects and rights that one reading found. unread: why, by kind."""

    namespace: str
    now: float  # seconds since 1970
    own_version: str
    api_version: str  # v1.37.2
    lists: Mapping[str, list[Json]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()  # rights of the scheduler: "create pods/binding"
    ignored: tuple[str, ...] = ()  # kinds that count as not installed, as it may not watch them
    own_lacking: tuple[str, ...] = ()  # rights of the caller

    def all(self, kind: str) -> list[Json]:
        return self.lists.get(kind, [])

    def own(self, kind: str) -> list[Json]:
        """Returns those in the namespace of the installation."""
        return [each for each in self.all(kind) if meta(each).get("namespace") == self.namespace]

    def named(self, kind: str, name: str) -> Json | None:
        return next((each for each in self.own(kind) if meta(each).get("name") == name), None)


def meta(obj: Json) -> Json:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def read(
    client: Client, namespace: str, own_namespace: str, now: float, version: str
) -> Installation:
    """Reads the installation. own_namespace: where the caller submits. Raises Unreachable."""
    lists: dict[str, list[Json]] = {}
    unread: dict[str, str] = {}
    answer = client.get("/version")
    for kind, path in KINDS.items():
        try:
            lists[kind], _ = object_pages.listed(client, path, MOST)
        except StatusError as error:
            if error.status == 404:
                lists[kind] = []
            else:
                unread[kind] = f"you may not list {path.full_name}{ASK}"
    one = {
        "ConfigMap": f"/api/v1/namespaces/{namespace}/configmaps/{CA_CONFIG_MAP}",
        "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{CENTRAL_ACCOUNT}",
    }
    for kind, where in one.items():
        try:
            lists[kind] = [client.get(where)]
        except StatusError as error:
            if error.status == 404:
                lists[kind] = []
            else:
                unread[kind] = f"you may not read {where.rpartition('/v1/')[2]}{ASK}"
    lacking, ignored = list[str](), list[str]()
    try:
        lacking, ignored = _scheduler_lacks(client, namespace)
    except AccessUnknown:
        unread["rights"] = f"you may not create subjectaccessreviews{ASK}"
    own = _caller_lacks(client, own_namespace)
    said = str(answer.get("gitVersion"))
    if said.endswith(LOCAL) and not any(lists.get(kind) for kind in INSTALLED):
        unread |= dict.fromkeys(INSTALLED, "nothing is installed in the local cluster of a demo")
    return Installation(
        namespace, now, version, said, lists, unread, tuple(lacking), tuple(ignored), own
    )


def _scheduler_lacks(client: Client, namespace: str) -> tuple[list[str], list[str]]:
    """Returns the rights that it lacks, and the kinds that it ignores without a right."""
    account = Identity(f"system:serviceaccount:{namespace}:{CENTRAL_ACCOUNT}")
    reviewer = AccessReviewer(client)
    decoder = Decoder((), ())
    jobs = {kind.resource for kind in job_kinds(decoder)}
    lacking = [f"{verb} {what}" for verb, what in WRITES if not reviewer.may(account, verb, what)]
    ignored = []
    for kind in kinds(decoder):
        if kind.resource not in jobs and not reviewer.may(account, "watch", kind.full_name):
            if kind.dispensable:
                ignored.append(kind.full_name)
            else:
                lacking.append(f"watch {kind.full_name}")
    return lacking, ignored


def _caller_lacks(client: Client, namespace: str) -> tuple[str, ...]:
    lacking = []
    for verb, what in OWN_RIGHTS:
        plural, _, group = what.partition(".")
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        reply = client.request("POST", path, orjson.dumps(review))
        if reply.ok and (reply.json().get("status") or {}).get("allowed") is False:
            lacking.append(f"{verb} {what} in {namespace}")
    return tuple(lacking)
