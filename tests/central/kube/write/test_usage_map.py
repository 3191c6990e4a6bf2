"""What queues have used, in a ConfigMap of the in-memory API server: what was written is read, and rubbish is
refused."""

import json
import zlib
from base64 import b64encode

import pytest

from central.kube.transport.http_client import Client
from central.kube.write import usage_map
from central.kube.write.usage_map import NAME, NotKept
from central.model.facts import PastUsageSeen, QueuePast

MAPS = "/api/v1/namespaces/default/configmaps"
USAGE = PastUsageSeen(1000.5, (QueuePast("b", (("cpu", 2.5), ("gpu", 1e-3))), QueuePast("a", ())))


def put(client: Client, text: bytes) -> None:
    raw = {"metadata": {"name": NAME}, "binaryData": {"usage": text.decode()}}
    reply = client.request("POST", MAPS, json.dumps(raw).encode())
    assert reply.ok, reply.error()


def packed(plain: bytes) -> bytes:
    return b64encode(zlib.compress(plain))


def test_what_is_written_is_read(client: Client) -> None:
    assert usage_map.load(client, "default") is None
    usage_map.save(client, "default", PastUsageSeen(1.0, ()))
    usage_map.save(client, "default", USAGE)
    found = usage_map.load(client, "default")
    assert found is not None
    assert (found.at, set(found.queues)) == (USAGE.at, set(USAGE.queues))


def test_a_text_of_an_earlier_version_is_read(client: Client) -> None:
    """It has penalties of tenants, which no longer exist."""
    put(client, packed(b'{"at": 1, "queues": {"q": {"cpu": 2}}, "debts": [["q", "n", 1, 600]]}'))
    expected = PastUsageSeen(1.0, (QueuePast("q", (("cpu", 2.0),)),))
    assert usage_map.load(client, "default") == expected


def test_of_too_many_queues_the_largest_are_kept(client: Client) -> None:
    many = tuple(QueuePast(f"q{number}", (("cpu", float(number)),)) for number in range(6000))
    usage_map.save(client, "default", PastUsageSeen(1.0, many))
    found = usage_map.load(client, "default")
    assert found is not None
    assert {queue.name for queue in found.queues} == {f"q{number}" for number in range(1000, 6000)}


@pytest.mark.parametrize(
    "text",
    [
        b"AAAA",
        packed(b"[]"),
        packed(b'{"at": 1}'),
        packed(b'{"at": "x", "queues": {}}'),
        packed(b'{"at": 1, "queues": {"q": 3}}'),
        packed(b'{"at": 1, "queues": {"q": {"cpu": -1}}}'),
        packed(b'{"at": 1, "queues": {"q": {"cpu": "nan"}}}'),
        packed(b'{"at": "inf", "queues": {}}'),
        packed(b"[" * 100_000),
        packed(b'{"at": 1, "queues": {' + b" " * (9 << 20)),
        packed(b'{"at": 1, "queues": {"q": {}}}')[:-8],
    ],
)
def test_rubbish_is_refused(client: Client, text: bytes) -> None:
    put(client, text)
    with pytest.raises(NotKept, match=NAME):
        usage_map.load(client, "default")


def test_a_map_without_the_key(client: Client) -> None:
    reply = client.request("POST", MAPS, json.dumps({"metadata": {"name": NAME}}).encode())
    assert reply.ok
    with pytest.raises(NotKept):
        usage_map.load(client, "default")
