"""The scheduler's certificate in a Secret: created once, kept, renewed, agreed on."""

import base64
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from central.kube.transport.http_client import Client, StatusError
from central.server.tls import Credentials, UnusableCredentials
from central.server.tls_secret import from_cluster
from tests.central.kube.scripted_api import Scripted, failure

Make = Callable[[str, dict[str, Any]], dict[str, Any]]

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NS = "/api/v1/namespaces/lockstep-system"


@pytest.fixture
def namespace(made: Make) -> str:
    made("/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
    return "lockstep-system"


def published(client: Client) -> bytes:
    return str(client.get(f"{NS}/configmaps/lockstep-ca")["data"]["ca.crt"]).encode()


def test_created_once_and_kept(client: Client, namespace: str) -> None:
    first = from_cluster(client, namespace, NOW)
    assert from_cluster(client, namespace, NOW) == first
    assert published(client) == first.ca
    secret = client.get(f"{NS}/secrets/lockstep-central-tls")
    assert base64.b64decode(secret["data"]["tls.crt"]) == first.certificate


def test_renewed_by_the_same_authority(client: Client, namespace: str) -> None:
    first = from_cluster(client, namespace, NOW)
    later = from_cluster(client, namespace, NOW + timedelta(days=70))
    assert later.ca == first.ca
    assert later.certificate != first.certificate
    assert from_cluster(client, namespace, NOW + timedelta(days=70)) == later


def test_two_that_start_at_once_agree(client: Client, namespace: str) -> None:
    found: list[Credentials] = []
    threads = [
        threading.Thread(target=lambda: found.append(from_cluster(client, namespace, NOW)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert published(client) == found[0].ca


def test_an_outdated_config_map_is_corrected(client: Client, made: Make, namespace: str) -> None:
    made(f"{NS}/configmaps", {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": "old"}})
    assert published(client) == b"old"
    assert from_cluster(client, namespace, NOW).ca == published(client)


@pytest.mark.parametrize(
    "data",
    [None, {"tls.crt": "eA=="}, dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "eA==")],
)
def test_a_secret_without_a_certificate(
    client: Client, made: Make, namespace: str, data: dict[str, str] | None
) -> None:
    made(f"{NS}/secrets", {"metadata": {"name": "lockstep-central-tls"}, "data": data})
    with pytest.raises(
        UnusableCredentials, match=r"Secret lockstep-system/lockstep-central-tls: .*delete it"
    ):
        from_cluster(client, namespace, NOW)


def test_without_permission_for_secrets(connected: Callable[[str], Client]) -> None:
    with Scripted(lambda _: failure(403, "secrets is forbidden")) as server:
        with pytest.raises(StatusError, match="secrets is forbidden"):
            from_cluster(connected(server.url), "lockstep-system", NOW)
        assert json.dumps([call.body for call in server.calls]) == "[null]"
