"""JSON of the API server, whatever is in it. The API server takes 10,000 levels, the parser 1,024: an object with more
of them must not keep its kind from being listed or watched. Nor must a text that is no valid Unicode, which the API
server replaces and what stands before it may not."""

import re
from typing import Any

import orjson

LEVELS = 200  # deeper parts are read as null; the decoders refuse objects with half as many
# An escape that is half a surrogate pair; or else whole pairs and other escapes, which are skipped.
_ESCAPES = re.compile(
    rb"\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Raises orjson.JSONDecodeError, a ValueError."""
    for _ in range(2):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            text = _repaired(text, error)
    return orjson.loads(text)


def _repaired(text: bytes, error: orjson.JSONDecodeError) -> bytes:
    """The text without what the parser refused. Raises the error where that is not to be repaired."""
    if "depth" in str(error):
        return _cut(text)
    if "surrogate" in str(error) or "UTF-8" in str(error):
        return _ESCAPES.sub(_with_whole_pairs, text.decode(errors="replace").encode())
    raise error


def _with_whole_pairs(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


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
