"""The Queue `default`, made where somebody wants it as an object."""

import logging

import orjson
import pytest

from central.kube import defaultqueue
from central.kube.client import Client
from central.standalone.apiserver import StandaloneApi

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def test_it_is_made_once_and_then_its_owners(client: Client) -> None:
    defaultqueue.make(client)
    assert client.get(f"{QUEUES}/default")["spec"]["weight"] == 1
    changed = orjson.dumps({"spec": {"weight": 5}})
    client.request("PATCH", f"{QUEUES}/default", changed, "application/merge-patch+json")
    defaultqueue.make(client)
    assert client.get(f"{QUEUES}/default")["spec"]["weight"] == 5


def test_nothing_waits_for_it(
    api: StandaloneApi, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.stop()
    with caplog.at_level(logging.WARNING):
        defaultqueue.make(client)
    assert "the Queue default is not made: " in caplog.text
