"""Persistent connections, and one sentence for each problem on the way to the API server."""

import base64
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from central.kube.transport.http_client import (
    Client,
    KubeconfigError,
    StatusError,
    Unreachable,
    connect,
)
from central.server import tls
from tests.central.kube.api_fixtures import kubeconfig
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.cable import Cable


def test_one_connection_serves_many_requests(tmp_path: Path) -> None:
    with Scripted(lambda _: Answer(200, {"a": 1})) as server:
        client = connect(kubeconfig(tmp_path, server.url, token="secret"))
        for _ in range(20):
            assert client.get("/x") == {"a": 1}
        assert server.connections == 1
        assert server.calls[0].headers["authorization"] == "Bearer secret"
        client.close()


def test_requests_run_concurrently(tmp_path: Path) -> None:
    together = threading.Barrier(8, timeout=5)

    def answer(_: object) -> Answer:
        together.wait()  # nobody is answered before all have asked
        return Answer(200, {})

    with Scripted(answer) as server:
        client = connect(kubeconfig(tmp_path, server.url))
        threads = [threading.Thread(target=client.get, args=("/x",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.calls) == 8
        client.close()


def test_one_request_finds_out_that_idle_connections_are_dead(tmp_path: Path) -> None:
    """Of a machine that lost its power, say. The others are not tried one after the other, each until its timeout."""
    together = threading.Barrier(4, timeout=5)

    def answer(call: Call) -> Answer:
        if call.path == "/first":
            together.wait()
        return Answer(200, {})

    with Scripted(answer) as server, Cable(int(server.url.rpartition(":")[2])) as cable:
        client = connect(kubeconfig(tmp_path, cable.url))
        threads = [threading.Thread(target=client.get, args=("/first",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cable.freeze()
        with pytest.raises(Unreachable):
            client.get("/x", timeout_s=0.2)
        client.get("/x")
        client.close()


def test_requests_survive_a_server_restart(tmp_path: Path) -> None:
    with Scripted(lambda _: Answer(200, {})) as server:
        client = connect(kubeconfig(tmp_path, server.url))
        client.get("/x")
    with Scripted(lambda _: Answer(200, {}), port=server.port):
        client.get("/x")
    with pytest.raises(Unreachable, match="Connection refused"):
        client.get("/x")


def test_a_server_address_with_a_path(tmp_path: Path) -> None:
    with Scripted(lambda _: Answer(200, {})) as server:
        client = connect(kubeconfig(tmp_path, server.url + "/k8s/clusters/c-1/"))
        client.get("/api/v1/pods")
        assert server.calls[0].path == "/k8s/clusters/c-1/api/v1/pods"
        client.close()


def test_errors_carry_the_servers_message(tmp_path: Path) -> None:
    answers = iter(
        [
            failure(403, "pods is forbidden", reason="Forbidden"),
            Answer(502, "<html>\nbad gateway"),
            Answer(200, "not JSON"),
        ]
    )
    with Scripted(lambda _: next(answers)) as server:
        client = connect(kubeconfig(tmp_path, server.url))
        with pytest.raises(StatusError, match="pods is forbidden") as refused:
            client.get("/x")
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        with pytest.raises(StatusError, match="<html>"):
            client.get("/x")
        with pytest.raises(Unreachable, match="not a JSON object"):
            client.get("/x")
        client.close()


def served_by(credentials: tls.Credentials, folder: Path) -> ssl.SSLContext:
    for name, content in (("crt", credentials.certificate), ("key", credentials.key)):
        (folder / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    return context


def test_tls_with_the_clusters_authority(tmp_path: Path) -> None:
    ours, others = (tls.issue("ns", datetime.now(UTC)) for _ in range(2))
    with Scripted(lambda _: Answer(200, {}), served_by(ours, tmp_path)) as server:

        def trusting(ca: bytes) -> Client:
            authority = {"certificate-authority-data": base64.b64encode(ca).decode()}
            return connect(kubeconfig(tmp_path, server.url, authority))

        client = trusting(ours.ca)
        client.get("/x")
        client.close()
        with pytest.raises(Unreachable, match="its certificate is not trusted"):
            trusting(others.ca).get("/x")
        client = connect(kubeconfig(tmp_path, server.url, {"insecure-skip-tls-verify": True}))
        client.get("/x")
        client.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "line 1: not YAML: "),
        ("hello", "not a valid kubeconfig"),
        ("{}", "current-context"),
        ("", "empty"),
        (None, "no such file"),
    ],
)
def test_an_invalid_kubeconfig_is_one_sentence(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    with pytest.raises(KubeconfigError) as unusable:
        connect(str(file))
    said = str(unusable.value)
    assert said.startswith(f"kubeconfig {file}: ")
    assert sentence in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("url", "cluster", "sentence"),
    [
        ("ftp://x", {}, "not an http"),
        ("https://x", {"certificate-authority": "/nope"}, "/nope"),
        ("https://x", {"certificate-authority-data": "bm9wZQ=="}, "certificate"),
    ],
)
def test_an_unusable_server(
    tmp_path: Path, url: str, cluster: dict[str, str], sentence: str
) -> None:
    with pytest.raises(KubeconfigError, match=sentence):
        connect(kubeconfig(tmp_path, url, cluster))
