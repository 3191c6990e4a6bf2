"""The identity of a caller, and how a gRPC call carries its bearer token.

central.kube.transport.token_review authenticates, central.server.grpc.auth authorizes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    user: str  # system:serviceaccount:NS:NAME, or a user's name
    node: str = ""  # of the agent's pod; "" for callers that are no agent


@dataclass(frozen=True, slots=True)
class AuthFailure:
    why: str  # without the token
    authenticated: bool = False  # the token is valid, but not for this role
    transient: bool = False  # the API server could not be asked; try again


# Blocks during the request to the API server, so it is called off the event loop.
ReviewToken = Callable[[str], Identity | AuthFailure]

NO_TOKEN = AuthFailure("the call has no bearer token")


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The token of an "authorization: Bearer ..." entry; "" if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""
