"""JSON of the API server, whatever is nested in it. The API server takes 10,000 levels, the parser 1,024: an object with
more of them must not keep its kind from being listed or watched."""

import re
from typing import Any

import orjson

LEVELS = 200  # deeper parts are read as null; the decoders refuse objects with half as many
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Raises orjson.JSONDecodeError, a ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
    return orjson.loads(_cut(text))


def _cut(text: bytes) -> bytes:
    """The text with null in place of what is nested too deep. Linear."""
    depth, kept, at = 0, [], 0
    for token in _TOKENS.finditer(text):
        bracket = text[token.start() : token.start() + 1]
        if bracket in (b"{", b"["):
            depth += 1
            if depth == LEVELS + 1:
                kept += [text[at : token.start()], b"null"]
        elif bracket in (b"}", b"]"):
            if depth == LEVELS + 1:
                at = token.end()
            depth -= 1
    return b"".join((*kept, text[at:]))
