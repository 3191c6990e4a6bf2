"""Authenticates bearer tokens by TokenReview. Results are cached for a minute by the token's hash.

An agent is the ServiceAccount lockstep-agent in our namespace, with a token for our audience that is bound
to a pod. It may report for the node of that pod, which the API server names.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Unreachable
from central.model.identity import AuthFailure, Identity
from protos import names

log = logging.getLogger(__name__)

POD = BY_KIND["Pod"]

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_CACHED_MOST = 20_000
_FAILURE_KEPT_S = 10.0

ReviewResult = Identity | AuthFailure


class TokenReviewer:
    def __init__(self, client: Client, namespace: str, keep_s: float = 60.0) -> None:
        self._client = client
        self._namespace = namespace
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, bytes], tuple[float, ReviewResult]] = {}

    def review_agent(self, token: str) -> ReviewResult:
        """An agent, with the node of its pod."""
        return self._cached("agent", token, self._agent)

    def review_user(self, token: str) -> ReviewResult:
        """Any user or ServiceAccount, with a token for our audience or for the API server."""
        return self._cached("user", token, self._user)

    def _cached(self, role: str, token: str, ask: Callable[[str], ReviewResult]) -> ReviewResult:
        key = (role, hashlib.sha256(token.encode(errors="replace")).digest())
        until, answer = self._cache.get(key, (0.0, AuthFailure("")))
        now = time.monotonic()
        if now < until:
            return answer
        try:
            answer = ask(token)
        except Unreachable as error:
            log.warning("could not review a token: %s", error)
            return AuthFailure(
                "the API server is unreachable, the token could not be reviewed", transient=True
            )
        if not (isinstance(answer, AuthFailure) and answer.transient):
            keep_s = self._keep_s if isinstance(answer, Identity) else _FAILURE_KEPT_S
            with self._lock:
                if len(self._cache) >= _CACHED_MOST:
                    self._cache.clear()
                self._cache[key] = (now + min(keep_s, self._keep_s), answer)
        return answer

    def _agent(self, token: str) -> ReviewResult:
        status = self._review(token, names.AUDIENCE)
        if isinstance(status, AuthFailure):
            return status
        user = status["user"]
        account = f"system:serviceaccount:{self._namespace}:{names.AGENT_ACCOUNT}"
        if user.get("username") != account:
            return AuthFailure(f"{user.get('username')} is not {account}", authenticated=True)
        extra = user.get("extra") or {}
        pod, uid = (next(iter(extra.get(key) or ()), "") for key in (_POD, _POD_UID))
        if not pod:
            return AuthFailure("the token is not bound to a pod", authenticated=True)
        return self._on_node(account, pod, uid)

    def _on_node(self, account: str, pod: str, uid: str) -> ReviewResult:
        reply = self._client.request("GET", POD.path(self._namespace, pod))
        if reply.status == 404:
            return AuthFailure(
                f"the token's pod {self._namespace}/{pod} is gone", authenticated=True
            )
        if not reply.ok:
            log.warning(
                "could not read pod %s/%s of a token: %s", self._namespace, pod, reply.error()
            )
            return AuthFailure("the token's pod could not be read", transient=True)
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
        return Identity(account, node)

    def _user(self, token: str) -> ReviewResult:
        refusal = AuthFailure("")
        for audience in (None, names.AUDIENCE):
            status = self._review(token, audience)
            if not isinstance(status, AuthFailure):
                return Identity(status["user"].get("username") or "")
            refusal = status
        return refusal

    def _review(self, token: str, audience: str | None) -> dict[str, Any] | AuthFailure:
        spec: dict[str, Any] = {"token": token}
        if audience:
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        reply = self._client.request("POST", _PATH, orjson.dumps(body))
        if not reply.ok:
            log.warning("could not review a token: %s", reply.error())
            return AuthFailure("the API server could not review the token", transient=True)
        status: dict[str, Any] = reply.json().get("status") or {}
        if not status.get("authenticated") or not isinstance(status.get("user"), dict):
            return AuthFailure(
                "the API server rejects the token (expired, or for another audience)"
            )
        # A server that ignores audiences returns none, and so has not checked ours.
        if audience and audience not in (status.get("audiences") or ()):
            return AuthFailure(f"the token is not for the audience {audience}")
        return status
