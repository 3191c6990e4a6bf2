"""Creating the Queue object `default`."""

import logging

import orjson
import pytest

from central.kube.transport.http_client import Client
from central.kube.write import default_queue
from central.standalone.apiserver import StandaloneApi

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def test_it_is_created_once_and_never_overwritten(client: Client) -> None:
    default_queue.create_default_queue(client)
    assert client.get(f"{QUEUES}/default")["spec"]["weight"] == 1
    changed = orjson.dumps({"spec": {"weight": 5}})
    client.request("PATCH", f"{QUEUES}/default", changed, "application/merge-patch+json")
    default_queue.create_default_queue(client)
    assert client.get(f"{QUEUES}/default")["spec"]["weight"] == 5


def test_a_failure_is_only_logged(
    api: StandaloneApi, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.stop()
    with caplog.at_level(logging.WARNING):
        default_queue.create_default_queue(client)
    assert "could not create Queue default: " in caplog.text
