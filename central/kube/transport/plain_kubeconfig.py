"""Kubeconfigs that need no login program: one file, whose user has a token, a client certificate or nothing. They are
read here, because importing the kubernetes package takes longer than a command like `lockstep job list` may. All
others (exec, auth-provider, passwords, several files, proxies of the environment) are read by the kubernetes package,
which knows them all.

    with plain_kubeconfig.read(path, context) as found:     # None: leave it to the kubernetes package
        ...
"""

import base64
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import getproxies

import yaml

from central.model.json_types import Json

CLUSTER_KEYS = frozenset(
    ("server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify",
     "tls-server-name", "proxy-url", "extensions")
)  # fmt: skip
USER_KEYS = frozenset(
    ("token", "tokenFile", "client-certificate", "client-certificate-data", "client-key",
     "client-key-data")
)  # fmt: skip


@dataclass(slots=True)
class PlainConfiguration:
    """The fields of kubernetes.client.Configuration that are used. Certificate files given as data are temporary."""

    host: str
    proxy: str = ""
    tls_server_name: str = ""
    verify_ssl: bool = True
    ssl_ca_cert: str = ""
    ca_cert_data: str | None = None
    cert_file: str = ""
    key_file: str = ""
    namespace: str = "default"
    token: str = field(default="", repr=False)
    token_file: str = ""

    def get_api_key_with_prefix(self, identifier: str, alias: str = "") -> str:
        """The value of the Authorization header, empty without a token. A token file is read each time."""
        token = Path(self.token_file).read_text().strip() if self.token_file else self.token
        return f"Bearer {token}" if token else ""


@contextmanager
def read(path: str, context: str | None) -> Iterator[PlainConfiguration | None]:
    """Reads a plain kubeconfig; None if it is of another form or invalid: the kubernetes package then reports the
    error."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        try:
            found = _plain(Path(path).expanduser(), context, Path(folder))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            found = None
        yield found


def _plain(path: Path, context: str | None, folder: Path) -> PlainConfiguration | None:
    if os.pathsep in str(path) or getproxies().keys() & {"http", "https", "all"}:
        return None
    content = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    chosen = _named(content["contexts"], context or content["current-context"])["context"]
    cluster = _named(content["clusters"], chosen["cluster"])["cluster"]
    user = _named(content["users"], chosen["user"])["user"]
    if cluster.keys() - CLUSTER_KEYS or user.keys() - USER_KEYS:
        return None
    if not all(isinstance(value, str | bool) for value in (*cluster.values(), *user.values())):
        return None
    base = path.parent
    made = PlainConfiguration(
        cluster["server"].rstrip("/"),
        cluster.get("proxy-url") or "",
        cluster.get("tls-server-name") or "",
        not cluster.get("insecure-skip-tls-verify", False),
        namespace=chosen.get("namespace") or "default",
    )
    made.ssl_ca_cert = _file(cluster, "certificate-authority", base, folder)
    made.cert_file = _file(user, "client-certificate", base, folder)
    made.key_file = _file(user, "client-key", base, folder)
    if user.get("tokenFile"):
        made.token_file = str(base / user["tokenFile"])
    else:
        made.token = user.get("token") or ""
    return made


def _named(entries: list[Json], name: str) -> Json:
    """Raises ValueError unless there is exactly one."""
    (found,) = (entry for entry in entries if entry["name"] == name)
    return found


def _file(part: Json, key: str, base: Path, folder: Path) -> str:
    """The path of a certificate or a key, which may be given as data. Data take precedence."""
    if data := part.get(f"{key}-data"):
        made = folder / key
        made.write_bytes(base64.b64decode(data, validate=True))
        made.chmod(0o600)
        return str(made)
    return str(base / part[key]) if part.get(key) else ""
