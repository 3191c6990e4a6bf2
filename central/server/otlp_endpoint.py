"""The destination of traces: --otlp-endpoint, and the environment variables that OpenTelemetry's specification names
for exporters. Times, protocol and samplers other than the ones below have no effect here."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from central.server.optional_part import PartUnusable

PREFIX = "OTEL_EXPORTER_OTLP_"
PROTOCOL = "http/protobuf"
PATH = "/v1/traces"
SERVICE = "lockstep-central"


class EndpointUnusable(PartUnusable):
    """A sentence for the user."""


@dataclass(frozen=True, slots=True)
class CollectorAddress:
    """headers: sent with each request; they may hold a token, so nothing shows them."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    gzip: bool = False
    tls: ssl.SSLContext | None = None
    resource: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"


def endpoint(url: str, environ: Mapping[str, str]) -> CollectorAddress | None:
    """url: of the collector, as --otlp-endpoint takes it; empty: only the environment counts. None: no traces. Raises
    EndpointUnusable."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    whole = "" if url else environ.get(f"{PREFIX}TRACES_ENDPOINT", "")
    base = url or environ.get(f"{PREFIX}ENDPOINT", "")
    if not whole and not base:
        return None
    given = whole or base
    scheme, host, port, path = _split(given)
    _check_protocol(environ)
    return CollectorAddress(
        scheme,
        host,
        port,
        (path or "/") if whole else f"{path.rstrip('/')}{PATH}",
        _pairs(_either(environ, "HEADERS"), f"{PREFIX}HEADERS"),
        _gzip(_either(environ, "COMPRESSION")),
        _tls(_either(environ, "CERTIFICATE")) if scheme == "https" else None,
        _resource(environ),
    )


def check_url(url: str) -> str:
    """The URL. Raises EndpointUnusable."""
    _split(url)
    return url


def _split(url: str) -> tuple[str, str, int, str]:
    plain = url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url if plain else "")
        port = parts.port
    except ValueError as error:
        raise EndpointUnusable(f'"{url}" is not a URL: {error}') from error
    if parts.username is not None or parts.password is not None:
        raise EndpointUnusable(
            f"the URL of the collector holds a password; use the variable {PREFIX}HEADERS"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EndpointUnusable(
            f'"{url}" is not a URL of a collector, such as http://collector:4318'
        )
    if parts.query or parts.fragment:
        raise EndpointUnusable(f'"{url}" has a query or a fragment')
    return (
        parts.scheme,
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        parts.path,
    )


def _either(environ: Mapping[str, str], name: str) -> str:
    """The variable for traces goes before the one for all signals."""
    return environ.get(f"{PREFIX}TRACES_{name}") or environ.get(f"{PREFIX}{name}", "")


def _check_protocol(environ: Mapping[str, str]) -> None:
    if (protocol := _either(environ, "PROTOCOL")) not in ("", PROTOCOL):
        raise EndpointUnusable(
            f'{PREFIX}PROTOCOL is "{protocol}": the scheduler sends traces by {PROTOCOL} alone, to port 4318 of most '
            "collectors"
        )


def _gzip(compression: str) -> bool:
    if compression not in ("", "none", "gzip"):
        raise EndpointUnusable(f'{PREFIX}COMPRESSION is "{compression}": gzip or none')
    return compression == "gzip"


def _tls(certificate: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate or None)
    except OSError as error:  # ssl.SSLError among them
        raise EndpointUnusable(
            f"{PREFIX}CERTIFICATE {certificate}: {error.strerror or error}"
        ) from error


def _pairs(text: str, variable: str) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE,... with values in percent encoding."""
    found = []
    for each in text.split(","):
        name, equals, value = (part.strip() for part in each.partition("="))
        if not each.strip():
            continue
        value = unquote(value)
        safe = name.isascii() and name.isprintable() and not {*name} & {*' :"'}
        if not equals or not name or not safe or not value.isprintable() or not value.isascii():
            raise EndpointUnusable(
                f"{variable} is not NAME=VALUE,... with values in percent encoding"
            )
        found.append((name, value))
    return tuple(found)


def _resource(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    named = dict(_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""), "OTEL_RESOURCE_ATTRIBUTES"))
    named["service.name"] = environ.get("OTEL_SERVICE_NAME") or named.get("service.name") or SERVICE
    if pod := environ.get("POD_NAME"):
        named.setdefault("k8s.pod.name", pod)
    return tuple(sorted(named.items()))
