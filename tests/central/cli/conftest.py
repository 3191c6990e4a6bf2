"""An API server in memory, and the `lockstep` command with its kubeconfig."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from central.cli.main import main
from central.kube.transport.http_client import Client, connect
from central.standalone.apiserver import StandaloneApi
from tests.central.cli.run_cli import Lockstep

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
