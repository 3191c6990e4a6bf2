"""Objects that are nested deeper than the parser reads."""

import orjson
import pytest

from central.kube.transport import deep_json
from tests.own_time import own_time


@pytest.mark.parametrize("depth", [1100, 5000, 500_000])
def test_what_is_too_deep_is_null_and_the_rest_is_read(depth: int) -> None:
    bad = b'{"name":"a\\"]}","x":' + b'[{"y":' * depth + b"1" + b"}]" * depth + b',"z":[1]}'
    with own_time() as spent:
        found = deep_json.loads(b'{"items":[{"name":"b"},' + bad + b',{"name":"c"}]}')
    assert spent.seconds < 5.0
    assert [each["name"] for each in found["items"]] == ["b", 'a"]}', "c"]
    assert found["items"][1]["z"] == [1]
    inner, levels = found["items"][1]["x"], 0
    while inner is not None:
        inner, levels = (inner[0] if levels % 2 == 0 else inner["y"]), levels + 1
    assert 100 < levels < deep_json.LEVELS


@pytest.mark.parametrize("text", [b"", b"{", b"[1,", b"nul", b"[" * 3000, b'{"a":"' + b"x" * 9])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        deep_json.loads(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (rb'"a\ud800b"', "a\ufffdb"),
        (rb'"\udc00"', "\ufffd"),
        (rb'"\ud83d\ude00 \ud800"', "😀 \ufffd"),
        (rb'"\ud83d\ude00\ude00"', "😀\ufffd"),
        (rb'"\\ud800 \"\ud800"', '\\ud800 "\ufffd'),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'{"x":"\\ud800","y":' + b"[" * 3000 + b"]" * 3000 + b"}", "\ufffd"),
    ],
)
def test_a_text_that_is_no_unicode_keeps_no_other_from_being_read(text: bytes, found: str) -> None:
    read = deep_json.loads(b'{"items":[{"name":"b"},' + text + b"]}")["items"]
    assert read[0] == {"name": "b"}
    assert (read[1]["x"] if isinstance(read[1], dict) else read[1]) == found
