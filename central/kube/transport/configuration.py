"""The address and credentials of the API server, read by the kubernetes package: from kubeconfig files with
all their login methods, or from the pod's ServiceAccount, whose token file is read again when it rotates.

The package is imported when it is needed: it takes half a second, and plain kubeconfigs of users do without it."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import yaml

from central.kube.decode import plain_yaml
from central.kube.transport import plain_kubeconfig
from central.kube.transport.plain_kubeconfig import PlainConfiguration
from protos.printing import brief

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

SENTENCE = 700  # characters
MOST_BYTES = 16 << 20  # of a file
_INVALID = (yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError)


class KubeconfigError(Exception):
    """The configuration is missing or invalid. The message is for the user."""

    def __init__(self, sentence: str) -> None:
        super().__init__(brief(sentence, SENTENCE))


@dataclass(frozen=True, slots=True)
class ClientConfig:
    server: str  # https://10.0.0.1:6443
    context: ssl.SSLContext | None  # None: plain HTTP
    tls_name: str
    proxy: str
    configuration: Any

    def address(self) -> tuple[str, int]:
        url = urlsplit(self.server)
        return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)

    def authorization(self) -> str:
        """The current value of the header; "" with a client certificate or no credentials. Raises OSError."""
        try:
            value = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except _broken() as error:  # a token file that is being replaced, a login helper that fails
            raise OSError(f"no credentials: {error}") from error
        return str(value).strip() if value else ""


def load_config(kubeconfig: str | None) -> ClientConfig:
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _read_config("the pod's ServiceAccount", None)
    path = _existing(kubeconfig)
    return _read_config(f"kubeconfig {path}", path)


def load_user_config(kubeconfig: str | None, context: str | None) -> tuple[ClientConfig, str]:
    """The configuration as kubectl chooses it (files before the pod's ServiceAccount), and the default
    namespace."""
    try:
        path = _existing(kubeconfig)
    except KubeconfigError:
        if kubeconfig or context or not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise
        config = _read_config("the pod's ServiceAccount", None)
        try:
            return config, OWN_NAMESPACE.read_text().strip() or "default"
        except OSError:
            return config, "default"
    with plain_kubeconfig.read(path, context) as plain:
        if plain is not None:
            try:
                return _client_config(plain), plain.namespace
            except _INVALID as error:
                raise KubeconfigError(f"kubeconfig {path}: {_what(error)}") from error
    from kubernetes.config import list_kube_config_contexts

    where = f"kubeconfig {path}"
    try:
        contexts, active = list_kube_config_contexts(path)
    except _broken() as error:
        raise KubeconfigError(f"{where}: {_what(error)}") from error
    known = sorted(str(one["name"]) for one in contexts)
    if context and context not in known:
        raise KubeconfigError(f'{where} has no context "{context}", but {", ".join(known)}')
    config = _read_config(where, path, context)
    chosen = next((one for one in contexts if one["name"] == context), active)
    return config, str(chosen["context"].get("namespace") or "default")


def without_credentials(config: ClientConfig) -> dict[str, Any]:
    """Returns the API server's address and its certificate authority as JSON, the input of as_user."""
    given = config.configuration
    return {
        "host": given.host,
        "proxy": given.proxy or "",
        "tls_server_name": given.tls_server_name or "",
        "verify_ssl": bool(given.verify_ssl),
        "ssl_ca_cert": given.ssl_ca_cert or "",
        "ca_cert_data": given.ca_cert_data,
    }


def as_user(where: dict[str, Any], token: str) -> ClientConfig:
    """The same API server for somebody else."""
    return _client_config(PlainConfiguration(**where, token=token))


def _existing(kubeconfig: str | None) -> str:
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep)):
        raise KubeconfigError(
            f"kubeconfig {path}: no such file; name one with --kubeconfig or KUBECONFIG, "
            "or run in a pod"
        )
    for part in path.split(os.pathsep):
        _check_text(Path(part).expanduser())
    return path


def _check_text(file: Path) -> None:
    """Checks size and nesting of the file before it is parsed: the parsers below accept any depth and any size."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise KubeconfigError(f"kubeconfig {file}: larger than {MOST_BYTES >> 20} MiB")
        plain_yaml.check(content.decode())
    except FileNotFoundError:  # one of several may be missing
        return
    except _INVALID as error:
        raise KubeconfigError(f"kubeconfig {file}: {_what(error)}") from error


def _read_config(where: str, path: str | None, context: str | None = None) -> ClientConfig:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config, load_kube_config

    configuration = Configuration()
    try:
        if path is None:
            load_incluster_config(client_configuration=configuration)
        else:
            load_kube_config(path, context, configuration, persist_config=False)
        return _client_config(configuration)
    except _broken() as error:
        raise KubeconfigError(f"{where}: {_what(error)}") from error


def _broken() -> tuple[type[Exception], ...]:
    """Returns the exceptions that the kubernetes package raises for a configuration that is missing or invalid."""
    from kubernetes.config import ConfigException

    return (ConfigException, *_INVALID)


def _what(error: Exception) -> str:
    if isinstance(error, TypeError | KeyError | AttributeError):
        return "it is not a valid kubeconfig"
    if isinstance(error, yaml.YAMLError):
        return plain_yaml.sentence(error)
    return " ".join(str(error).split()) or type(error).__name__


def _client_config(configuration: Any) -> ClientConfig:
    url = urlsplit(configuration.host)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError(f'server "{configuration.host}" is not an http(s) address')
    proxy = configuration.proxy or ""
    if proxy and proxy_bypass(url.hostname):
        proxy = ""
    if proxy and urlsplit(proxy).scheme != "http":
        raise ValueError(f"proxy {proxy}: only http proxies are supported")
    context = _context(configuration) if url.scheme == "https" else None
    return ClientConfig(
        server=configuration.host.rstrip("/"),
        context=context,
        tls_name=configuration.tls_server_name or "",
        proxy=proxy,
        configuration=configuration,
    )


def _context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert or None, cadata=configuration.ca_cert_data or None
    )
    # Certificate authorities of clusters often lack extensions that Python 3.13 requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
