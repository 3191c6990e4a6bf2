"""What each reply to a creation, a deletion, a status or a patch means, with a client that answers from a list."""

from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Reply
from central.kube.write import objects_writer
from central.kube.write.objects_writer import GONE
from central.kube.write.retrying import Retry
from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered

OWNER = {"kind": "Job", "name": "j", "uid": "o", "controller": True}
META = {"name": "c", "namespace": "ns", "ownerReferences": [OWNER]}
CREATE = Create("ConfigMap", "ns", "c", {"metadata": META, "data": {"a": "b"}})
RENEW = Create("ConfigMap", "ns", "c", {"metadata": META}, renew=True)
SECRET = Create("Secret", "ns", "c", {"metadata": META})
KEYS = Create("Secret", "ns", "c", {"metadata": META, "stringData": {"own": "1"}}, keys=True)
CERTIFICATE = Create("Secret", "ns", "c", {"metadata": META}, certificate=("host",))
DELETE = Delete("ConfigMap", "ns", "c", "u", "over")
STATUS = SetStatus("Job", "ns", "c", "u", {"a": 1, "c": [{"e": 0}], "f": None})
PATCH = Patch("ConfigMap", "ns", "c", "u", {"metadata": {"labels": {"x": "y"}}, "data": {}})
PATH = "/api/v1/namespaces/ns/configmaps"


def reply(code: int, body: Any) -> Reply:
    return Reply(code, orjson.dumps(body))


def there(kind: str = "ConfigMap", code: int = 200, **meta: Any) -> Reply:
    return reply(code, {"kind": kind, "metadata": {"name": "c", "uid": "u", **meta}})


def failure(code: int, reason: str = "", message: str = "no", **more: Any) -> Reply:
    return reply(code, {"kind": "Status", "reason": reason, "message": message, **more})


def gone(plural: str = "configmaps", name: str = "c") -> Reply:
    return failure(404, "NotFound", details={"kind": plural, "name": name})


EXISTS = failure(409, "AlreadyExists", "it exists")
CONFLICT = failure(409, "Conflict", "other uid")
SUCCESS = reply(200, {"kind": "Status", "status": "Success"})
NO_NAMESPACE = gone("namespaces", "ns")


class Client:
    server = "https://api"

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.sent = list(replies), list[tuple[str, str]]()
        self.bodies: list[Any] = []
        self.types: list[str] = []

    def request(self, method: str, path: str, body: bytes | None, content_type: str) -> Reply:
        self.sent.append((method, path))
        self.bodies.append(orjson.loads(body) if body else None)
        self.types.append(content_type)
        return self.replies.pop(0)

    def run(self, decision: Any, **for_coordinators: str) -> Answered:
        answer = objects_writer.execute(self, decision, for_coordinators)  # type: ignore[arg-type]
        assert self.replies == [], "each reply was asked for"
        assert (answer.kind, answer.namespace, answer.name) == (decision.kind, "ns", "c")
        assert answer.verb == type(decision).__name__
        return answer


def met(*replies: Reply, of: Any) -> tuple[str, int, str]:
    answer = Client(*replies).run(of)
    return answer.why, answer.code, answer.uid


@pytest.mark.parametrize(
    ("replies", "why", "code", "uid"),
    [
        ([there(code=201)], "", 0, "u"),
        ([failure(403)], "no", 403, ""),
        ([failure(422)], "no", 422, ""),
        ([NO_NAMESPACE], "no", 0, ""),
        ([CONFLICT], "other uid", 409, ""),
        ([EXISTS, there(ownerReferences=[OWNER])], "", 0, "u"),
        ([EXISTS, there()], "ConfigMap c exists and is owned by another controller", 409, ""),
        ([EXISTS, there(ownerReferences=[{**OWNER, "uid": "p"}])], "ConfigMap c exists and is owned by another controller", 409, ""),
        ([EXISTS, there(ownerReferences=[{**OWNER, "controller": False}])], "ConfigMap c exists and is owned by another controller", 409, ""),
        ([EXISTS, there(ownerReferences=[OWNER], deletionTimestamp="now")], "an object of that name is being deleted", 409, ""),
        ([EXISTS, failure(403)], "no", 403, ""),
    ],
)  # fmt: skip
def test_a_creation(replies: list[Reply], why: str, code: int, uid: str) -> None:
    assert met(*replies, of=CREATE) == (why, code, uid)


def test_what_a_creation_sends() -> None:
    client = Client(there(code=201))
    client.run(CREATE)
    body = {"apiVersion": "v1", "kind": "ConfigMap", **CREATE.body}
    assert client.sent == [("POST", PATH)]
    assert client.bodies == [body]
    client = Client(EXISTS, there(ownerReferences=[OWNER]))
    client.run(CREATE)
    assert client.sent == [("POST", PATH), ("GET", f"{PATH}/c")]


def test_an_object_without_an_owner_is_nobodys() -> None:
    plain = Create("ConfigMap", "ns", "c", {"metadata": {"name": "c"}})
    assert met(EXISTS, there(), of=plain)[1] == 409


def test_a_creation_that_renews() -> None:
    client = Client(EXISTS, there(ownerReferences=[OWNER]), there())
    assert client.run(RENEW).uid == "u"
    assert client.sent[-1] == ("PATCH", f"{PATH}/c")
    assert client.bodies[-1] == {"metadata": {**META, "uid": "u"}}
    assert met(EXISTS, there(), of=RENEW)[1] == 409
    assert met(EXISTS, there(ownerReferences=[OWNER]), failure(422), of=RENEW) == ("no", 422, "")


@pytest.mark.parametrize("replies", [[EXISTS, gone()], [there(code=201, uid="")], [there("Pod")], [EXISTS, there("Pod")]])  # fmt: skip
def test_a_creation_that_is_repeated(replies: list[Reply]) -> None:
    with pytest.raises(Retry):
        Client(*replies).run(CREATE)


def test_secrets_are_never_read() -> None:
    assert met(EXISTS, of=SECRET) == ("", 0, "")
    assert met(there("Secret", 201), of=SECRET) == ("", 0, "u")
    assert met(failure(403), of=SECRET) == ("no", 403, "")


def test_keys_are_made_for_a_new_secret_only() -> None:
    secrets = "/api/v1/namespaces/ns/secrets"
    client = Client(EXISTS)
    client.run(KEYS)
    assert client.sent == [("POST", f"{secrets}?dryRun=All")]
    assert met(failure(403), of=KEYS) == ("no", 403, "")
    client = Client(there("Secret"), there("Secret", 201))
    assert client.run(KEYS, address="x").uid == "u"
    assert client.sent == [("POST", f"{secrets}?dryRun=All"), ("POST", secrets)]
    made = client.bodies[-1]["stringData"]
    assert made["own"] == "1"
    assert len(made) > 1
    assert "address" not in made, "that is for coordinators"
    assert "stringData" in client.bodies[0]
    client = Client(there("Secret"), EXISTS)
    assert client.run(CERTIFICATE, address="x").why == ""
    made = client.bodies[-1]["stringData"]
    assert made["address"] == "x"
    assert any("BEGIN CERTIFICATE" in each for each in made.values())


@pytest.mark.parametrize(
    ("replies", "why", "code"),
    [
        ([SUCCESS], "", 0),
        ([there()], "", 0),
        ([gone()], "", 0),
        ([failure(403)], "no", 403),
        ([NO_NAMESPACE], "no", 0),
        ([CONFLICT, there(uid="other")], "", 0),
        ([CONFLICT, gone()], "", 0),
        ([CONFLICT, failure(403)], "", 0),
    ],
)
def test_a_deletion(replies: list[Reply], why: str, code: int) -> None:
    assert met(*replies, of=DELETE) == (why, code, "")


@pytest.mark.parametrize("replies", [[CONFLICT, there()], [there("Pod")], [reply(200, [])], [there(uid="")]])  # fmt: skip
def test_a_deletion_that_is_repeated(replies: list[Reply]) -> None:
    with pytest.raises(Retry):
        Client(*replies).run(DELETE)


@pytest.mark.parametrize(("foreground", "policy"), [(True, "Foreground"), (False, "Background")])
def test_what_a_deletion_sends(foreground: bool, policy: str) -> None:
    client = Client(SUCCESS)
    client.run(Delete("ConfigMap", "ns", "c", "u", "over", foreground=foreground))
    assert client.sent == [("DELETE", f"{PATH}/c")]
    [body] = client.bodies
    assert (body["preconditions"], body["propagationPolicy"]) == ({"uid": "u"}, policy)
    assert "gracePeriodSeconds" not in body


def test_a_pod_that_is_deleted_has_the_grace_of_the_decision() -> None:
    client = Client(SUCCESS)
    client.run(Delete("Pod", "ns", "c", "u", "over", grace_s=600))
    assert client.bodies[0]["gracePeriodSeconds"] == 600


def test_a_status() -> None:
    client = Client(there("Job"))
    assert client.run(STATUS).uid == "u"
    [(method, path)] = client.sent
    assert (method, path.endswith("/jobs/c/status")) == ("PATCH", True)
    assert client.types == ["application/json-patch+json"]
    status = STATUS.status
    assert client.bodies == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/status", "value": status},
        ]
    ]
    assert met(gone("jobs"), of=STATUS) == (GONE, 404, "")
    assert met(failure(422), of=STATUS) == ("no", 422, "")
    assert met(NO_NAMESPACE, of=STATUS) == ("no", 0, "")


def test_a_patch() -> None:
    client = Client(there())
    assert client.run(PATCH).uid == "u"
    assert client.sent == [("PATCH", f"{PATH}/c")]
    assert client.bodies == [{"metadata": {"labels": {"x": "y"}, "uid": "u"}, "data": {}}]
    assert client.types == ["application/merge-patch+json"]
    assert met(gone(), of=PATCH) == (GONE, 404, "")
    assert met(CONFLICT, of=PATCH) == ("other uid", 409, "")
    assert met(NO_NAMESPACE, of=PATCH) == ("no", 0, "")
