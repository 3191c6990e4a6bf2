"""The scheduler's certificate in the cluster: Secret lockstep-central-tls, and its CA for the agents in
ConfigMap lockstep-ca. Replicas that start at the same time agree on the Secret that was created first."""

import base64
import logging
from datetime import datetime
from urllib.parse import quote

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Reply
from central.server import tls
from central.server.tls import Credentials, UnusableCredentials
from protos.names import CA_CONFIG_MAP

log = logging.getLogger(__name__)

SECRET = "lockstep-central-tls"
_FIELDS = {"ca": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}
_TRIES = 5


def from_cluster(client: Client, namespace: str, now: datetime) -> Credentials:
    """Reads, issues or renews the credentials. Raises Unreachable, Refused (of the API server) or
    UnusableCredentials."""
    for _ in range(_TRIES):
        credentials = _from_secret(client, namespace, now)
        if credentials is not None:
            _publish(client, namespace, credentials.ca)
            return credentials
    raise UnusableCredentials(f"Secret {namespace}/{SECRET}: another client keeps changing it")


def _from_secret(client: Client, namespace: str, now: datetime) -> Credentials | None:
    """Reads the Secret, or issues one; None if another replica wrote it meanwhile, so that it must be read again."""
    folder = f"/api/v1/namespaces/{quote(namespace)}/secrets"
    reply = client.request("GET", f"{folder}/{SECRET}")
    if reply.status == 404:
        made = tls.issue(namespace, now)
        return _stored(client.request("POST", folder, _secret(namespace, made)), made)
    secret = reply.accepted().json()
    try:
        data = secret.get("data") or {}
        old = Credentials(**{f: base64.b64decode(data[key]) for f, key in _FIELDS.items()})
        new = tls.renewed(old, namespace, now)
    except (KeyError, ValueError, UnusableCredentials) as error:
        raise UnusableCredentials(
            f"Secret {namespace}/{SECRET}: {_describe(error)}; delete it to issue a new one"
        ) from error
    if new == old:
        return old
    log.info("renewed the certificate")
    version = secret["metadata"].get("resourceVersion")
    body = _secret(namespace, new, version)
    return _stored(client.request("PUT", f"{folder}/{SECRET}", body), new)


def _stored(reply: Reply, credentials: Credentials) -> Credentials | None:
    return credentials if reply.accepted(409).ok else None


def _secret(namespace: str, credentials: Credentials, version: str | None = None) -> bytes:
    meta = {"name": SECRET, "namespace": namespace}
    if version:
        meta["resourceVersion"] = version
    data = {key: base64.b64encode(getattr(credentials, f)).decode() for f, key in _FIELDS.items()}
    body = BY_KIND["Secret"].body(type="kubernetes.io/tls", metadata=meta, data=data)
    return orjson.dumps(body)


def _publish(client: Client, namespace: str, ca: bytes) -> None:
    folder = f"/api/v1/namespaces/{quote(namespace)}/configmaps"
    meta = {"name": CA_CONFIG_MAP, "namespace": namespace}
    wanted = BY_KIND["ConfigMap"].body(metadata=meta, data={"ca.crt": ca.decode()})
    reply = client.request("GET", f"{folder}/{CA_CONFIG_MAP}")
    if reply.ok and (reply.json().get("data") or {}) == wanted["data"]:
        return
    if reply.status == 404:
        reply = client.request("POST", folder, orjson.dumps(wanted))
        if reply.ok:
            return
    if reply.ok or reply.status == 409:
        reply = client.request("PUT", f"{folder}/{CA_CONFIG_MAP}", orjson.dumps(wanted))
    reply.accepted()


def _describe(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
