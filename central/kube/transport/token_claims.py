"""Claims of a bearer token before they are verified. They only ever refuse a token that the API server would refuse
as well: this keeps nonsense away from the API server, and proves nothing."""

import base64
import binascii
import math
from dataclasses import dataclass

import orjson

LONGEST = 16 << 10  # characters; tokens of ServiceAccounts have about 1,000


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a JSON Web Token."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    not_before: float  # seconds since 1970; -inf: always
    expires: float  # inf: never


def is_jwt(token: str) -> bool:
    """Returns whether the token has the form of a JSON Web Token. Users of some clusters have tokens of other forms."""
    return token.count(".") == 2 and token.startswith("eyJ")


def claims(token: str) -> Claims | None:
    """Returns the claims; None if it is not a JSON Web Token."""
    if len(token) > LONGEST or not is_jwt(token) or not token.isascii():
        return None
    head, body, signature = token.split(".")
    first, found = _decoded(head), _decoded(body)
    if first is None or found is None or not first.get("alg") or not signature:
        return None
    audience = found.get("aud")
    audiences = audience if isinstance(audience, list) else [audience] if audience else []
    try:
        return Claims(
            _text(found.get("iss")),
            _text(found.get("sub")),
            tuple(each for each in audiences if isinstance(each, str)),
            _seconds(found.get("nbf"), -math.inf),
            _seconds(found.get("exp"), math.inf),
        )
    except ValueError:
        return None


def _decoded(part: str) -> dict[str, object] | None:
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = orjson.loads(raw)
    except (binascii.Error, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError("not a text")
    return value or ""


def _seconds(value: object, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a time")
    return float(value)
