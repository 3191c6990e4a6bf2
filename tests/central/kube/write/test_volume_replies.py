"""What is asked about the claims of a pod, and what each answer means, with a client that answers by path."""

from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Reply
from central.kube.write.retrying import Retry
from central.kube.write.volume_binding import VolumeBinder
from central.model.decisions import Bind

CLAIM, VOLUME, NODE = "/persistentvolumeclaims/data", "/persistentvolumes/v1", "/nodes/n1"
DONE, SELECTED = "pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node"
PREBOUND = Bind("u", "ns", "p", "n1", claims=(("data", "v1"),))
PROVISIONED = Bind("u", "ns", "p", "n1", claims=(("data", ""),))


def claim(volume: str = "", **annotations: str) -> Reply:
    names = {"done": DONE, "node": SELECTED}
    found = {names[key]: value for key, value in annotations.items()}
    meta = {"name": "data", "uid": "c1", "resourceVersion": "5", "annotations": found}
    return reply(200, {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"volumeName": volume}})  # fmt: skip


def volume(ref: Any = None, host: str = "") -> Reply:
    meta = {"name": "v1", "uid": "v", "resourceVersion": "8"}
    spec: dict[str, Any] = {"claimRef": ref}
    if host:
        term = {"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return reply(200, {"kind": "PersistentVolume", "metadata": meta, "spec": spec})


def reply(code: int, body: Any) -> Reply:
    return Reply(code, orjson.dumps(body))


def failure(code: int, message: str = "no", **more: Any) -> Reply:
    return reply(code, {"kind": "Status", "message": message, **more})


def gone(plural: str, name: str) -> Reply:
    return failure(404, reason="NotFound", details={"kind": plural, "name": name})


WORKER = reply(200, {"kind": "Node", "metadata": {"name": "n1", "uid": "n", "labels": {"host": "n1"}}})  # fmt: skip
OK = claim()


class Client:
    server = "https://api"

    def __init__(self, **answers: Reply) -> None:
        """By verb and kind, such as get_claim."""
        self.answers = answers
        self.written: list[tuple[str, Any]] = []

    def request(self, method: str, path: str, body: bytes | None, content_type: str) -> Reply:
        kind = "claim" if CLAIM in path else "volume" if VOLUME in path else "node"
        if method == "PATCH":
            assert content_type == "application/merge-patch+json"
            assert body is not None
            self.written.append((kind, orjson.loads(body)))
        return self.answers[f"{method.lower()}_{kind}"]


def outcome(bind: Bind, binder: VolumeBinder | None = None, **answers: Reply) -> tuple[str, list[tuple[str, Any]]]:  # fmt: skip
    """What is said, with "..." before what is tried again; what was written."""
    client = Client(**answers)
    used = binder or VolumeBinder(client)  # type: ignore[arg-type]
    used._client = client  # type: ignore[assignment]
    try:
        return used.bind_volumes(bind), client.written
    except Retry as again:
        return f"...{again.why}", client.written


@pytest.mark.parametrize(
    ("bind", "found", "said"),
    [
        (PREBOUND, claim("v1", done="yes"), ""),
        (PREBOUND, claim("v2", done="yes"), "claim data is bound to volume v2 instead of v1"),
        (PREBOUND, claim("v1", done="yes", node="n2"), ""),
        (PROVISIONED, claim("", done="yes", node="n1"), "...the volume of claim data is being provisioned for node n1"),
        (PROVISIONED, claim("v2", done="yes"), ""),
        (PROVISIONED, claim("v2", done="yes", node="n1"), ""),
        (PROVISIONED, claim(node="n1"), "...the volume of claim data is being provisioned for node n1"),
        (PROVISIONED, claim(node="n2"), "...the volume of claim data is being provisioned for node n2"),
        (PROVISIONED, claim("v2", node="n1"), "...the volume of claim data is being provisioned for node n1"),
        (PROVISIONED, gone("persistentvolumeclaims", "data"), "claim data is gone"),
        (PROVISIONED, failure(403), "claim data: no"),
        (PREBOUND, failure(403), "claim data: no"),
    ],
)  # fmt: skip
def test_what_a_claim_says(bind: Bind, found: Reply, said: str) -> None:
    assert outcome(bind, get_claim=found) == (said, [])


def test_the_node_is_written_on_a_claim_once() -> None:
    wait = "...the volume of claim data is being provisioned for node n1"
    wrote = ("claim", {"metadata": {"annotations": {SELECTED: "n1"}, "resourceVersion": "5"}})
    binder = VolumeBinder(None)  # type: ignore[arg-type]
    assert outcome(PROVISIONED, binder, get_claim=OK, patch_claim=failure(409)) == (wait, [wrote])
    assert outcome(PROVISIONED, binder, get_claim=OK, patch_claim=failure(403)) == ("claim data: no", [wrote])  # fmt: skip
    assert outcome(PROVISIONED, binder, get_claim=OK, patch_claim=OK) == (wait, [wrote])
    failed = "the volume of claim data could not be provisioned for node n1"
    assert outcome(PROVISIONED, binder, get_claim=OK) == (failed, [])
    binder.forget(PROVISIONED)
    assert outcome(PROVISIONED, binder, get_claim=OK, patch_claim=OK) == (wait, [wrote]), "by then it is another try"  # fmt: skip
    other = PROVISIONED._replace(pod="other")
    assert outcome(other, binder, get_claim=OK, patch_claim=OK) == (wait, [wrote])


MINE = {"namespace": "ns", "name": "data", "uid": "c1"}


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        (MINE, "...claim data is not bound to volume v1 yet"),
        ({**MINE, "uid": ""}, "...claim data is not bound to volume v1 yet"),
        ({**MINE, "uid": None}, "...claim data is not bound to volume v1 yet"),
        ({**MINE, "uid": "c0"}, "volume v1 belongs to an earlier claim data"),
        ({**MINE, "name": "other"}, "volume v1 was given to claim ns/other"),
        ({**MINE, "namespace": "b"}, "volume v1 was given to claim b/data"),
    ],
)
def test_whose_a_volume_is(ref: Any, said: str) -> None:
    assert outcome(PREBOUND, get_claim=OK, get_volume=volume(ref)) == (said, [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (volume(), "...claim data is not bound to volume v1 yet"),
        (failure(409), "...claim data is not bound to volume v1 yet"),
        (failure(403), "volume v1: no"),
    ],
)
def test_the_claim_is_written_on_its_volume(answer: Reply, said: str) -> None:
    found, written = outcome(PREBOUND, get_claim=OK, get_volume=volume(), patch_volume=answer)
    assert found == said
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **MINE, "resourceVersion": "5"}
    marked = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}, "resourceVersion": "8"}  # fmt: skip
    assert written == [("volume", {"metadata": marked, "spec": {"claimRef": ref}})]


def test_a_volume_that_cannot_be_read() -> None:
    lost = gone("persistentvolumes", "v1")
    assert outcome(PREBOUND, get_claim=OK, get_volume=lost)[0] == "volume v1 is gone"
    assert outcome(PREBOUND, get_claim=OK, get_volume=failure(403))[0] == "volume v1: no"


@pytest.mark.parametrize(
    ("found", "node", "said"),
    [
        (volume(host="n1"), WORKER, ""),
        (volume(), WORKER, ""),
        (volume(host="n2"), WORKER, "claim data got volume v1, which node n1 cannot use"),
        (failure(403, "volume?"), WORKER, "claim data: volume?"),
        (volume(), failure(403, "node?"), "claim data: node?"),
        (failure(403, "volume?"), failure(403, "node?"), "claim data: volume?"),
    ],
)
def test_a_volume_that_was_provisioned_for_another_node(found: Reply, node: Reply, said: str) -> None:  # fmt: skip
    """Another pod of the claim was to run there. This one's node may reach it, too."""
    there = claim("v1", done="yes", node="n2")
    assert outcome(PROVISIONED, get_claim=there, get_volume=found, get_node=node) == (said, [])


def test_of_several_claims_all_are_asked_for_at_once() -> None:
    """A reason goes before what is under way, and the first thing that is under way is said."""

    class Many(Client):
        def request(self, method: str, path: str, body: bytes | None, content_type: str) -> Reply:
            self.written.append((method, path.rpartition("/")[2]))
            name = path.rpartition("/")[2]
            if name == "lost":
                return gone("persistentvolumeclaims", "lost")
            done = {DONE: "yes"} if name == "there" else {}
            meta = {"name": name, "uid": "c", "resourceVersion": "1", "annotations": done}
            spec = {"volumeName": "v" if done else ""}
            return reply(200, {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})

    client = Many()
    binder = VolumeBinder(client)  # type: ignore[arg-type]
    with pytest.raises(Retry, match="claim a is being provisioned"):
        binder.bind_volumes(PROVISIONED._replace(claims=(("a", ""), ("b", ""))))
    assert [each for each in client.written if each[0] == "PATCH"] == [("PATCH", "a"), ("PATCH", "b")]  # fmt: skip
    with_lost = PROVISIONED._replace(pod="x", claims=(("a", ""), ("lost", ""), ("b", "")))
    assert binder.bind_volumes(with_lost) == "claim lost is gone"
    binder.forget(with_lost)
    with pytest.raises(Retry, match="claim a is being provisioned"):
        binder.bind_volumes(with_lost._replace(claims=(("a", ""),)))
    after = with_lost._replace(claims=(("lost", ""), ("there", "")))
    assert binder.bind_volumes(after) == "claim lost is gone", "whatever the others say"
