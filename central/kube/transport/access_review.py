"""Rights of a user, by SubjectAccessReview. Answers are cached, because one question about the cluster needs many of
them.

    reviewer = AccessReviewer(client)
    reviewer.may(identity, "get", "pods", "team-a")     # blocks for one request; may raise AccessUnknown
"""

import threading
import time
from typing import Any

import orjson

from central.kube.transport.http_client import Client, Unreachable
from central.model.identity import Identity

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_CACHED_MOST = 20_000
ALLOWED_S, DENIED_S = 60.0, 10.0

_Key = tuple[Identity, str, str, str]


class AccessUnknown(Exception):
    """The API server could not be asked: a sentence for the user."""


class AccessReviewer:
    """May be called from any thread."""

    def __init__(
        self, client: Client, allowed_s: float = ALLOWED_S, denied_s: float = DENIED_S
    ) -> None:
        self._client = client
        self._kept_s = {True: allowed_s, False: denied_s}
        self._lock = threading.Lock()
        self._answers: dict[_Key, tuple[float, bool]] = {}

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        """resource: with its group, as in kubectl (jobs.batch.volcano.sh). namespace "": all namespaces, or the
        resource has none. Raises AccessUnknown."""
        key = (identity, verb, resource, namespace)
        until, answer = self._answers.get(key, (0.0, False))
        now = time.monotonic()
        if now < until:
            return answer
        answer = self._ask(identity, verb, resource, namespace)
        with self._lock:
            self._answers.pop(key, None)
            while len(self._answers) >= _CACHED_MOST:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = (now + self._kept_s[answer], answer)
        return answer

    def _ask(self, identity: Identity, verb: str, resource: str, namespace: str) -> bool:
        plural, _, group = resource.partition(".")
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
        spec: dict[str, Any] = {
            "user": identity.user,
            "uid": identity.uid,
            "groups": identity.groups,
            "extra": dict(identity.extra),
            "resourceAttributes": attributes,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        try:
            reply = self._client.request("POST", _PATH, orjson.dumps(body))
            if not reply.ok:
                raise AccessUnknown(f"the API server did not say what you may see: {reply.error()}")
            status = reply.json().get("status")
        except Unreachable as error:
            raise AccessUnknown(
                "the API server is unreachable and can't say what you may see"
            ) from error
        except (ValueError, AttributeError) as error:
            raise AccessUnknown("the API server's answer is unreadable") from error
        return isinstance(status, dict) and status.get("allowed") is True
