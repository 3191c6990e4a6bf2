"""The objects of a cluster as the simulator takes them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from central.cli import object_pages
from central.cli.main import main
from central.cli.what_if import live_cluster
from central.cli.what_if.live_cluster import as_document
from central.kube.transport.http_client import Client
from protos.names import RUNS_FOR
from tests.central.cli.what_if.test_worker import served

Json = dict[str, Any]
Put = Callable[[str, Json], Json]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OWNED = [{"kind": "Job", "uid": "u"}]


def pod(phase: str = "Running", ran_s: float = 0.0, **metadata: Any) -> Json:
    started = (NOW - timedelta(seconds=ran_s)).isoformat().replace("+00:00", "Z")
    meta = {"name": "p", "managedFields": [1], **metadata}
    return {"kind": "Pod", "metadata": meta, "status": {"phase": phase, "startTime": started}}


def left_of(runs_for: str, ran_s: float, phase: str = "Running", **status: Any) -> str:
    given = pod(phase, ran_s, annotations={RUNS_FOR: runs_for, "a": "b"})
    given["status"].update(status)
    made = as_document(given, NOW)
    assert made is not None
    assert made["metadata"]["annotations"]["a"] == "b"
    return str(made["metadata"]["annotations"][RUNS_FOR])


def test_a_running_pod_has_the_rest_of_its_time() -> None:
    assert left_of("1h", 600) == "3000.000s"
    assert left_of("1h", 0) == "3600.000s"
    assert left_of("1h", -5) == "3600.000s", "its kubelet's clock is ahead"
    assert left_of("1h", 3599.5) == left_of("1h", 9000) == "1.000s"


@pytest.mark.parametrize("started", [None, "", "soon", "2026-05-01T11:00:00"])
def test_what_cannot_be_counted_is_left_as_it_is(started: str | None) -> None:
    assert left_of("1h", 0, startTime=started) == "1h"
    assert left_of("for ever", 600) == "for ever"
    assert left_of("1h", 600, phase="Pending") == "1h"


def test_who_takes_no_part() -> None:
    leaving: Json = {"deletionTimestamp": "2026-05-01T11:59:59Z"}
    for phase in ("Succeeded", "Failed"):
        assert as_document(pod(phase), NOW) is None
        assert as_document(pod(phase, ownerReferences=OWNED), NOW) is not None
    assert as_document({"kind": "Queue", "metadata": {"name": "q", **leaving}}, NOW) is None
    made = as_document(pod(**leaving), NOW)
    assert made is not None
    assert made["metadata"]["annotations"] == {live_cluster.LEAVES: "1s"}
    assert "managedFields" not in made["metadata"]


def test_a_node_names_no_file_of_this_machine() -> None:
    noted = {"lockstep.dev/capture": "/etc/passwd", "a": "b"}
    node = {"kind": "Node", "metadata": {"name": "n", "annotations": noted}}
    made = as_document(node, NOW)
    assert made is not None
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert noted == {"lockstep.dev/capture": "/etc/passwd", "a": "b"}, "the object is not changed"


def test_the_gang_of_each_pod() -> None:
    def made(name: str, space: str, **more: Any) -> Json:
        return {"kind": "Pod", "metadata": {"name": name, "namespace": space, **more}}

    pods = [
        made("a", "x", annotations={"scheduling.k8s.io/group-name": "g"}),
        made("b", "x", labels={"volcano.sh/job-name": "j"}),
        made("c", "x", labels={"lockstep.dev/gang": "l"}),
        made("d", "x", labels={"batch.kubernetes.io/job-name": "k"}),
        made("a", "y"),
        {"kind": "Pod", "metadata": {"name": "e"}},
        {"kind": "Node", "metadata": {"name": "n"}},
    ]
    assert live_cluster.members(pods) == {
        ("x", "a"): "g",
        ("x", "b"): "j",
        ("x", "c"): "l",
        ("x", "d"): "k",
        ("y", "a"): "a",
        ("default", "e"): "e",
    }


def test_equal_nodes_share_one_file(tmp_path: Path) -> None:
    equal, other = {"gpus": [{"index": 0}]}, {"gpus": [{"index": 1}]}
    found: dict[str, Json] = {"a": equal, "b": equal, "c": other, "d": {"gpus": []}, "x": equal}
    nodes: list[Json] = [{"kind": "Node", "metadata": {"name": name}} for name in "abcde"]
    nodes[0]["metadata"]["annotations"] = {"k": "v"}
    nodes.append({"kind": "Pod", "metadata": {"name": "a"}})
    live_cluster.add_hardware(nodes, found, tmp_path)
    noted = [each["metadata"].get("annotations") or {} for each in nodes]
    captures = [each.get("lockstep.dev/capture") for each in noted]
    assert captures[0] == captures[1] != captures[2]
    assert captures[3:] == [None, None, None]
    assert noted[0]["k"] == "v"
    assert json.loads(Path(str(captures[2])).read_text()) == other
    assert len(list(tmp_path.iterdir())) == 2


def test_every_page_is_read(client: Client, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "edcba":
        put("/api/v1/nodes", {"metadata": {"name": name}})
    for page in (1, 2, 5, 6):
        monkeypatch.setattr(object_pages, "PAGE", page)
        objects = live_cluster.read(client, NOW).objects
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "Node"]
        assert sorted(names) == list("abcde")
    monkeypatch.setattr(object_pages, "PAGE", 2)
    monkeypatch.setattr(live_cluster, "MOST", 3)
    found = live_cluster.read(client, NOW)
    assert sum(each["kind"] == "Node" for each in found.objects) == 3
    assert found.unread == ("only the first 3 nodes were read",)


@pytest.mark.parametrize(
    ("status", "says", "code"),
    [
        (403, "you may not list nodes: ann", 4),
        (401, "you may not list nodes: ann", 4),
        (500, "nodes cannot be listed: ann", 5),
        (410, "nodes cannot be listed: ann", 5),
    ],
)
def test_an_api_server_that_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, says: str, code: int
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"kind": "Status", "message": "ann"}).encode()
            nodes = self.path.startswith("/api/v1/nodes?")
            self.send_response(status if nodes else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with served(Refusing) as api:
        named = {"name": "x", "cluster": {"server": api["host"]}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        users = [{"name": "x", "user": {}}]
        config = {"clusters": [named], "contexts": [context], "users": users}
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps({**config, "current-context": "x", "kind": "Config"}))
        assert main(("what-if", f"--kubeconfig={file}", "--cordon=a")) == code
    assert capsys.readouterr().err == f"lockstep: {says}\n"
