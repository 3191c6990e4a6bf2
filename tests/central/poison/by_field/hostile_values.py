"""What a field is replaced by: values that the API server accepts for some field, and those that only a broken
conversion webhook or proxy sends. Each has a name, so that a failure says what it was."""

from typing import Any, NamedTuple

from tests.central.poison.corpus import nested


class Value(NamedTuple):
    name: str
    of: Any


KIB_256 = 256 * 1024
_TEXTS = {
    "empty text": "",
    "blank": " ",
    "NUL": "a\0b",
    "newlines": "a\n\nb\r\nERROR all is lost",
    "escape sequence": "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "right to left": "\u202etxt.exe\u2066",
    "lone surrogate": "a\ud800b",
    "256 KiB": "x" * KIB_256,
    "256 KiB of digits": "9" * KIB_256,
    "256 KiB of commas": "a," * (KIB_256 // 2),
    "emoji": "😀" * 300,
    "markup": "<img src=x onerror=alert(1)>",
    "format": "%s%n{0.__class__}",
    "path": "../../../etc/passwd",
    "odd label": "a b/c/d=e:f",
    "another number": "٣",
    "digits and rest": "12abc",
    "minus one": "-1",
    "huge amount": "5E",
    "beyond floats": "1e999",
    "tiny amount": "1e-999",
    "not a number": "NaN",
    "infinity": "Infinity",
    "hexadecimal": "0x10",
    "underscore": "1_000",
    "year 9999": "9999-12-31T23:59:59Z",
    "year 0": "0000-01-01T00:00:00Z",
    "year 1": "0001-01-01T00:00:00Z",
    "local time": "2026-11-20T10:00:00",
    "time far east": "9999-12-31T23:59:59-23:59",
    "long duration": "9999999h",
    "true": "true",
}
_NUMBERS = {
    "0": 0,
    "-1": -1,
    "2^31 - 1": 2**31 - 1,
    "2^31": 2**31,
    "2^53 + 1": 2**53 + 1,
    "2^63 - 1": 2**63 - 1,
    "2^64": 2**64,
    "-2^63": -(2**63),
    "10^300": 10**300,
    "a half": 0.5,
    "1e308": 1e308,
    "minus nothing": -0.0,
}
_PARTS: dict[str, Any] = {
    "null": None,
    "true itself": True,
    "false itself": False,
    "empty list": [],
    "empty map": {},
    "list of null": [None],
    "list of text": ["a"],
    "list of a map": [{}],
    "map of null": {"a": None},
    "map of text": {"a": "b"},
    "map with an empty key": {"": "x"},
    "deep map": nested(150),
    "deep list": [[[[[[[[[[]]]]]]]]]],
    "100,000 numbers": [1] * 100_000,
    "100,000 maps": [{}] * 100_000,
    "3,000 keys": {f"k{i}": "v" for i in range(3000)},
    "a key of 4,000 characters": {"k" * 4000: "v"},
    "an unprintable key": {"a\x1b[31m\nb": "c"},
}
VALUES = tuple(Value(name, of) for part in (_TEXTS, _NUMBERS, _PARTS) for name, of in part.items())
