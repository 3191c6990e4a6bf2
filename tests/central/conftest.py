"""An in-memory API server with a client, and fixtures that create objects in it. Fixtures import what they use: most
tests below this folder need no HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from central.model.json_types import Json

if TYPE_CHECKING:
    from central.kube.transport.http_client import Client
    from tests.fakes.cable import Cable
    from tests.fakes.faulty_api import FaultyApi


@pytest.fixture
def api() -> Iterator[FaultyApi]:
    from tests.fakes.faulty_api import FaultyApi

    with FaultyApi() as server:
        yield server


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """connected(url): a client, closed after the test."""
    from central.kube.transport.http_client import connect
    from tests.central.kube.api_fixtures import kubeconfig

    clients: list[Client] = []

    def connect_to(url: str) -> Client:
        clients.append(connect(kubeconfig(tmp_path, url)))
        return clients[-1]

    yield connect_to
    for client in clients:
        client.close()


@pytest.fixture
def client(api: FaultyApi, connected: Callable[[str], Client]) -> Client:
    return connected(api.url)


@pytest.fixture
def cable(api: FaultyApi) -> Iterator[Cable]:
    """To the API server."""
    from tests.fakes.cable import Cable

    with Cable(int(api.url.rpartition(":")[2])) as cable:
        yield cable


@pytest.fixture
def made(client: Client) -> Any:
    """made(path, object): creates it and returns the server's version of it."""

    def make(path: str, body: Json) -> Json:
        reply = client.request("POST", path, json.dumps(body).encode())
        assert reply.ok, reply.body
        found: Json = reply.json()
        return found

    return make
