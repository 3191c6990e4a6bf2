"""Requests to the Kubernetes API with the standard library alone: in a pod with its ServiceAccount, elsewhere with what
`kubectl config view` says, so a kubeconfig needs no YAML reader."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 30.0


class ClusterRefused(Exception):
    """The API server's sentence. status: of HTTP; 0: there is no answer, or no configuration."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status

    @property
    def passes(self) -> bool:
        """Returns whether the same request may succeed later."""
        return self.status in (0, 429) or self.status >= 500


class KubernetesApi:
    """namespace: the usual one. token: None for a client certificate, or none."""

    def __init__(
        self, server: str, namespace: str, context: ssl.SSLContext | None, token: str | None
    ) -> None:
        self.server, self.namespace = server.rstrip("/"), namespace
        self._context, self._token = context, token

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer; text where it is not JSON. Raises ClusterRefused."""
        sent = None if body is None else json.dumps(body).encode()
        made = urllib.request.Request(self.server + path, sent, method=method)
        made.add_header("Content-Type", "application/json")
        if self._token:
            made.add_header("Authorization", "Bearer " + self._token)
        try:
            with urllib.request.urlopen(made, timeout=TIMEOUT_S, context=self._context) as reply:
                text = reply.read().decode(errors="replace")
                kind = reply.headers.get("Content-Type", "")
        except urllib.error.HTTPError as error:
            raise ClusterRefused(_sentence(error), error.code) from None
        except (OSError, http.client.HTTPException) as error:
            raise ClusterRefused(f"no API server answers at {self.server}: {error}") from None
        return json.loads(text) if kind.startswith("application/json") else text


def _sentence(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}: {text[:200]}"


def connect() -> KubernetesApi:
    """Connects with the pod's own ServiceAccount, unless KUBECONFIG is set. Raises ClusterRefused."""
    host, token = os.environ.get("KUBERNETES_SERVICE_HOST"), ACCOUNT / "token"
    if host and token.exists() and "KUBECONFIG" not in os.environ:
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        name = f"[{host}]" if ":" in host else host
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        space = (ACCOUNT / "namespace").read_text().strip()
        return KubernetesApi(f"https://{name}:{port}", space, trusted, token.read_text().strip())
    return from_config(_kubectl_config())


def _kubectl_config() -> dict[str, Any]:
    command = ["kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except FileNotFoundError:
        raise ClusterRefused("outside of a cluster, kubectl must be installed") from None
    if done.returncode:
        raise ClusterRefused(done.stderr.strip() or "kubectl config view failed")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def from_config(config: dict[str, Any]) -> KubernetesApi:
    """config: a kubeconfig with one context. Raises ClusterRefused."""
    try:
        cluster = config["clusters"][0]["cluster"]
        user = (config.get("users") or [{"user": {}}])[0]["user"] or {}
        space = config["contexts"][0]["context"].get("namespace") or "default"
    except (KeyError, IndexError, TypeError):
        raise ClusterRefused("the kubeconfig has no current context") from None
    if user.get("exec") or user.get("auth-provider"):
        raise ClusterRefused(
            "this kubeconfig logs in with a program, which is not supported here: run in a pod, or use a token"
        )
    trusted = None
    if cluster["server"].startswith("https:"):
        data = cluster.get("certificate-authority-data")
        trusted = ssl.create_default_context(cadata=_decoded(data) if data else None)
        if cluster.get("insecure-skip-tls-verify"):
            trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
        _add_client_certificate(trusted, user)
    return KubernetesApi(cluster["server"], space, trusted, user.get("token"))


def _add_client_certificate(trusted: ssl.SSLContext, user: dict[str, Any]) -> None:
    """Through a file that is gone at once, because ssl reads no keys from memory."""
    if not user.get("client-certificate-data"):
        return
    both = _decoded(user["client-certificate-data"]) + "\n" + _decoded(user["client-key-data"])
    with tempfile.NamedTemporaryFile("w") as file:  # mode 0600
        file.write(both)
        file.flush()
        trusted.load_cert_chain(file.name)


def _decoded(data: str) -> str:
    return base64.b64decode(data).decode()
