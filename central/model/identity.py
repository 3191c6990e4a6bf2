"""Who is speaking: the values in which a token's review is answered, and how a gRPC call carries its
token. Knows neither the API server (central.kube.review asks it) nor what a caller may do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    user: str  # system:serviceaccount:NS:NAME, or a person
    node: str = ""  # where the token's pod runs; empty: not an agent


@dataclass(frozen=True, slots=True)
class AuthFailure:
    why: str  # a sentence without the token
    authenticated: bool = False  # the token is good, but not for this
    transient: bool = False  # the reviewer could not ask: try again


# Blocks while it asks the API server; called off the event loop.
ReviewToken = Callable[[str], Identity | AuthFailure]

NO_TOKEN = AuthFailure("no bearer token came with the call")


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The token of an "authorization: Bearer ..." entry; empty: there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""
