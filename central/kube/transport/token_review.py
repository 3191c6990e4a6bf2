"""Authenticates bearer tokens by TokenReview. Each review is a request; central.server.grpc.token_cache decides
which tokens are worth one.

An agent is the ServiceAccount lockstep-agent in our namespace, with a token for our audience that is bound
to a pod. It may report for the node of that pod, which the API server names. A coordinator has a token of an
audience of its own that is bound to a pod.
"""

import logging
import math
import time
from dataclasses import replace
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport import token_claims
from central.kube.transport.http_client import Client, Unreachable
from central.model.identity import AuthFailure, Identity, Role
from protos import names

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]

_AUDIENCES: dict[Role, str] = {"agent": names.AUDIENCE, "coordinator": names.COORDINATOR_AUDIENCE}
_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_SKEW_S = 60.0  # between our clock and the API server's

ReviewResult = Identity | AuthFailure
REJECTED = "the API server rejects the token (expired, or for another audience)"
UNREACHABLE = AuthFailure(
    "the API server is unreachable, the token could not be reviewed", transient=True
)


class TokenReviewer:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._account = f"system:serviceaccount:{namespace}:{names.AGENT_ACCOUNT}"

    def implausible(self, token: str, role: Role) -> str:
        """Returns why the API server would surely reject the token; "" if it may accept it. The tokens of agents and
        coordinators are JSON Web Tokens with our audiences. Users' tokens may have another form, which says nothing."""
        if len(token) > token_claims.LONGEST or not token.isascii() or not token.isprintable():
            return "the token is not a bearer token"
        if role == "user" and not token_claims.is_jwt(token):
            return ""
        claims = token_claims.claims(token)
        if claims is None:
            return "the token is not a JSON Web Token"
        now = time.time()
        if claims.expires < now - _SKEW_S or claims.not_before > now + _SKEW_S:
            return REJECTED
        if role == "user":
            return ""
        if _AUDIENCES[role] not in claims.audiences:
            return REJECTED
        return "" if claims.subject else "the token names no account"

    def review(self, token: str, role: Role) -> ReviewResult:
        """Blocks for one or two requests."""
        try:
            match role:
                case "agent":
                    found = self._agent(token)
                case "coordinator":
                    found = self._coordinator(token)
                case "user":
                    found = self._user(token)
        except Unreachable as error:
            log.debug("could not review a token: %s", error)
            return UNREACHABLE
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.debug("an answer to a token review is unreadable: %r", error)
            return AuthFailure("the API server's answer is unreadable", transient=True)
        return found

    def _agent(self, token: str) -> ReviewResult:
        status = self._review(token, names.AUDIENCE)
        if isinstance(status, AuthFailure):
            return status
        user = status["user"]
        if user.get("username") != self._account:
            return AuthFailure(f"{user.get('username')} is not {self._account}", authenticated=True)
        extra = user.get("extra") or {}
        pod, uid = (next(iter(extra.get(key) or ()), "") for key in (_POD, _POD_UID))
        if not pod:
            return AuthFailure("the token is not bound to a pod", authenticated=True)
        node = self._node_of(pod, uid)
        return node if isinstance(node, AuthFailure) else _identity(user, token, node)

    def _coordinator(self, token: str) -> ReviewResult:
        """Reviews the token of a pod with any account; the Job is found later from the Jobs' pods."""
        status = self._review(token, names.COORDINATOR_AUDIENCE)
        if isinstance(status, AuthFailure):
            return status
        user = status["user"]
        uid = next(iter((user.get("extra") or {}).get(_POD_UID) or ()), "")
        if not uid:
            return AuthFailure("the token is not bound to a pod", authenticated=True)
        return replace(_identity(user, token), pod_uid=str(uid))

    def _node_of(self, pod: str, uid: str) -> str | AuthFailure:
        reply = self._client.request("GET", POD.path(self._namespace, pod))
        if reply.status == 404:
            return AuthFailure(
                f"the token's pod {self._namespace}/{pod} is gone", authenticated=True
            )
        if not reply.ok:
            return AuthFailure(
                f"the token's pod could not be read: {reply.error()}", transient=True
            )
        found: dict[str, Any] = reply.json()
        if uid and (found.get("metadata") or {}).get("uid") != uid:
            return AuthFailure(
                f"the token's pod {self._namespace}/{pod} is gone", authenticated=True
            )
        node = (found.get("spec") or {}).get("nodeName") or ""
        if not node:
            return AuthFailure(
                f"the token's pod {self._namespace}/{pod} is not bound to a node",
                authenticated=True,
            )
        return str(node)

    def _user(self, token: str) -> ReviewResult:
        refusal = AuthFailure("")
        for audience in self._audiences(token):
            status = self._review(token, audience)
            if not isinstance(status, AuthFailure):
                return _identity(status["user"], token)
            refusal = status
        return refusal

    def _audiences(self, token: str) -> tuple[str | None, ...]:
        """A token for our audience is not one for the API server, and the other way round."""
        claims = token_claims.claims(token)
        if claims is not None and names.AUDIENCE in claims.audiences:
            return (names.AUDIENCE,)
        return (None,)

    def _review(self, token: str, audience: str | None) -> dict[str, Any] | AuthFailure:
        spec: dict[str, Any] = {"token": token}
        if audience:
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        reply = self._client.request("POST", _PATH, orjson.dumps(body))
        if not reply.ok:
            return AuthFailure(
                f"the API server could not review the token: {reply.error()}", transient=True
            )
        status: dict[str, Any] = reply.json().get("status") or {}
        if not status.get("authenticated") or not isinstance(status.get("user"), dict):
            return AuthFailure(REJECTED)
        # A server that ignores audiences returns none, and so has not checked ours.
        if audience and audience not in (status.get("audiences") or ()):
            return AuthFailure(f"the token is not for the audience {audience}")
        return status


def _identity(user: dict[str, Any], token: str, node: str = "") -> Identity:
    claims = token_claims.claims(token)
    return Identity(
        str(user.get("username") or ""),
        node,
        str(user.get("uid") or ""),
        tuple(map(str, user.get("groups") or ())),
        tuple(
            (str(key), tuple(map(str, values or ())))
            for key, values in sorted((user.get("extra") or {}).items())
        ),
        claims.expires if claims is not None else math.inf,
    )
