"""The ConfigMap with past usage, which a stranger may have written, with every field hostile: it is read, or not kept
with a sentence."""

import zlib
from base64 import b64encode
from typing import Any

import pytest

from central.kube.write import usage_map
from central.kube.write.usage_map import NotKept
from tests.central.poison.by_field.field_check import as_sent
from tests.central.poison.by_field.field_walk import apply, changes

PLAIN = {"at": 1.5, "queues": {"q": {"cpu": 1.5, "nvidia.com/gpu": 2}}}


def read(data: bytes) -> str:
    """Why it is not kept; empty if it is."""
    try:
        usage_map._read(b64encode(data).decode())
    except NotKept as error:
        return str(error)
    return ""


def test_every_field() -> None:
    assert not read(zlib.compress(as_sent(PLAIN)))
    refused = 0
    for change in changes(PLAIN):
        try:
            why = read(zlib.compress(as_sent(apply(PLAIN, change))))
        except Exception as error:
            raise AssertionError(f"{change}: {error!r:.200}") from error
        assert len(why) < 400, change
        refused += bool(why)
    assert refused > 100


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 100, zlib.compress(b"[" * 100_000), zlib.compress(b"0" * (1 << 26)), b"x" * 3_000_000],
    ids=["nothing", "zeros", "deep", "a bomb", "no zlib"],
)  # fmt: skip
def test_content_that_is_no_usage(data: bytes) -> None:
    assert read(data)


@pytest.mark.parametrize("text", [None, 5, [], {}, "ä", "%", "\ud800"])
def test_a_value_that_is_no_text(text: Any) -> None:
    with pytest.raises(NotKept):
        usage_map._read(text)
