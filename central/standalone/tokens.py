"""ServiceAccount tokens: issues them, optionally bound to a pod, and reviews them. They are signed with a secret of
this run of the server, so tokens of another run are invalid. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import orjson

from central.model.json_types import Json
from central.model.timestamps import stamp
from central.standalone import api_errors

ISSUER = "https://kubernetes.default.svc.cluster.local"
Find = Callable[[str, str, str], Json | None]  # plural, namespace, name -> object


def issue(secret: bytes, account: Json, asked: Json, find: Find, now_s: float) -> Json:
    """The answer to a TokenRequest for this ServiceAccount."""
    metadata = account["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    spec = asked.get("spec") or {}
    audiences = spec.get("audiences") or [ISSUER]
    lasts_s = int(spec.get("expirationSeconds") or 3600)
    if lasts_s < 600:
        causes = [("spec.expirationSeconds", "may not specify a duration less than 10 minutes")]
        raise api_errors.invalid("TokenRequest", "authentication.k8s.io", "", causes)
    bound: Json = {}
    if ref := spec.get("boundObjectRef"):
        bound = _bound(ref, namespace, name, find)
    claims: Json = {
        "iss": ISSUER,
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "aud": audiences,
        "iat": int(now_s),
        "exp": int(now_s) + lasts_s,
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
            **bound,
        },
    }
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, "audiences": audiences, "expirationSeconds": lasts_s},
        "status": {"token": _sign(secret, claims), "expirationTimestamp": stamp(claims["exp"])},
    }


def _bound(ref: Json, namespace: str, account: str, find: Find) -> Json:
    kinds = {"Pod": "pods", "Secret": "secrets"}
    kind, name = ref.get("kind", ""), ref.get("name", "")
    if kind not in kinds:
        raise api_errors.bad_request(f"cannot bind token to object of type {kind}")
    found = find(kinds[kind], namespace, name)
    if found is None:
        raise api_errors.not_found(kinds[kind], "", name)
    uid = found["metadata"]["uid"]
    if ref.get("uid") not in (None, "", uid):
        why = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record ({uid})"
        raise api_errors.conflict(kinds[kind], "", name, why)
    if kind == "Pod" and found["spec"].get("serviceAccountName") != account:
        used = found["spec"].get("serviceAccountName")
        raise api_errors.bad_request(
            f"cannot bind token for serviceaccount {account!r} to pod running with different serviceaccount name "
            f"{used!r}"
        )
    return {kind.lower(): {"name": name, "uid": uid}}


def review(secret: bytes, asked: Json, find: Find, now_s: float) -> Json:
    """The answer to a TokenReview."""
    spec = asked.get("spec") or {}
    status: Json = {"authenticated": False}
    try:
        claims = _claims(secret, spec.get("token") or "", now_s)
        audiences = [one for one in spec.get("audiences") or [ISSUER] if one in claims["aud"]]
        if not audiences:
            raise ValueError("token audiences are not the ones asked for")
        status = {"authenticated": True, "user": _user(claims, find), "audiences": audiences}
    except ValueError as error:
        status["error"] = f"[invalid bearer token, {error}]"
    return {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {key: value for key, value in spec.items() if key != "token"},
        "status": status,
    }


def _user(claims: Json, find: Find) -> Json:
    private = claims["kubernetes.io"]
    namespace, account = private["namespace"], private["serviceaccount"]
    extra: dict[str, list[str]] = {}
    for plural, word in (
        ("serviceaccounts", "serviceaccount"),
        ("pods", "pod"),
        ("secrets", "secret"),
    ):
        if (bound := private.get(word)) is None:
            continue
        found = find(plural, namespace, bound["name"])
        if found is None or found["metadata"]["uid"] != bound["uid"]:
            raise ValueError(f"{word} {namespace}/{bound['name']} has been deleted")
        if word == "pod":
            extra["authentication.kubernetes.io/pod-name"] = [bound["name"]]
            extra["authentication.kubernetes.io/pod-uid"] = [bound["uid"]]
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    ]
    user: Json = {"username": claims["sub"], "uid": account["uid"], "groups": groups}
    return {**user, "extra": extra} if extra else user


def _sign(secret: bytes, claims: Json) -> str:
    head = _encoded(orjson.dumps({"alg": "HS256", "typ": "JWT"}))
    text = f"{head}.{_encoded(orjson.dumps(claims))}"
    return f"{text}.{_encoded(_mac(secret, text))}"


def _claims(secret: bytes, token: str, now_s: float) -> Json:
    text, _, signature = token.rpartition(".")
    if not hmac.compare_digest(_encoded(_mac(secret, text)).encode(), signature.encode()):
        raise ValueError("not a token of this server")
    body = text.partition(".")[2]
    claims: Any = orjson.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    if claims["exp"] <= now_s:
        raise ValueError("token has expired")
    return dict(claims)


def _mac(secret: bytes, text: str) -> bytes:
    return hmac.digest(secret, text.encode(), hashlib.sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
