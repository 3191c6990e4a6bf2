"""The identity of a caller, and how a gRPC call carries its bearer token.

central.kube.transport.token_review authenticates, central.server.grpc.auth authorizes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["agent", "user", "coordinator"]


@dataclass(frozen=True, slots=True)
class Identity:
    user: str  # system:serviceaccount:NS:NAME, or a user's name
    node: str = ""  # of the agent's pod; "" for callers that are no agent
    # As the API server knows the user, for its answer on what the user may do.
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    expires: float = math.inf  # of the token, in seconds since 1970; inf: it does not say
    pod_uid: str = ""  # of the pod that a coordinator's token is bound to; "" for other callers


@dataclass(frozen=True, slots=True)
class AuthFailure:
    why: str  # without the token
    authenticated: bool = False  # the token is valid, but not for this role
    transient: bool = False  # the API server could not be asked; try again
    busy: bool = False  # too many unknown tokens; try again later


class TokenReview(Protocol):
    def implausible(self, token: str, role: Role) -> str:
        """Returns why the API server would surely reject the token, found without asking it; "" if it may accept it."""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        """Asks the API server, and blocks meanwhile."""


NO_TOKEN = AuthFailure("the call has no bearer token")


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The token of an "authorization: Bearer ..." entry; "" if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""
