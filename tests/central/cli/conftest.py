"""An API server in memory, the `lockstep` command with its kubeconfig, and a scheduler that it asks."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from central.cli.main import main
from central.kube.transport.http_client import Client, connect
from central.server.grpc.query_service import Queries
from central.standalone.apiserver import StandaloneApi
from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.scheduler_process import SchedulerServer, credentials

Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[StandaloneApi]:
    with StandaloneApi() as server:
        yield server


@pytest.fixture
def client(api: StandaloneApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.delenv("COLUMNS", raising=False)
    client = connect(str(kubeconfig))
    yield client
    client.close()


@pytest.fixture
def put(client: Client) -> Callable[[str, Json], Json]:
    """put(path, object): creates the object with its status."""

    def put(path: str, obj: Json) -> Json:
        reply = client.request("POST", path, orjson.dumps(obj))
        assert reply.ok, reply.body
        made: Json = reply.json()
        if "status" in obj:
            whole = orjson.dumps({**made, "status": obj["status"]})
            reply = client.request("PUT", f"{path}/{made['metadata']['name']}/status", whole)
            assert reply.ok, reply.body
            made = reply.json()
        return made

    return put


@pytest.fixture
def lockstep(client: Client, capsys: pytest.CaptureFixture[str]) -> Lockstep:
    def typed(*argv: str, code: int = 0) -> str:
        try:
            ended = main(argv)
        except SystemExit as error:  # argparse
            ended = int(error.code or 0)
        output = capsys.readouterr()
        assert ended == code, output
        assert "Traceback" not in output.err
        return output.out + output.err if code else output.out

    return typed


@pytest.fixture
def asked_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedScheduler]:
    with ExitStack() as stack:

        def start(answers: Queries, term: int = 1) -> SchedulerServer:
            server = SchedulerServer(answers, term=term)
            stack.callback(server.server.stop)
            (tmp_path / "ca").write_bytes(credentials().ca)
            (tmp_path / "token").write_text("user")
            monkeypatch.setenv("LOCKSTEP_SERVER", server.address)
            monkeypatch.setenv("LOCKSTEP_CA", str(tmp_path / "ca"))
            monkeypatch.setenv("LOCKSTEP_TOKEN_FILE", str(tmp_path / "token"))
            monkeypatch.setenv("LOCKSTEP_SERVER_NAME", "localhost")
            return server

        yield start
