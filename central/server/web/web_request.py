"""Fields of a request to the console, and the headers of its answers. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from central.model.json_types import Json
from central.server.web.front_proxy import FrontProxy
from protos.common.http_server import HttpRequest, RequestRefused

BODY_MOST = 64 << 10  # bytes of a question
ROWS_MOST = 500  # of a page
LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "[::1]"))
# Nothing but our own files and data: no inline script or style, no other host, no frame around us.
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int, most: int) -> int:
        """A parameter from 0 to most. Raises RequestRefused."""
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= most):
            raise RequestRefused(400, f"{name}: must be a whole number from 0 to {most}")
        return int(text)

    def text(self, name: str) -> str:
        """A parameter that must be there, at most 253 characters. Raises RequestRefused."""
        found = self.query.get(name, "")
        if not found or len(found) > 253:
            raise RequestRefused(400, f"{name}: must have 1 to 253 characters")
        return found


def page_of(
    request: Request, rows: Sequence[Any], show: Callable[[Any], Json] = lambda row: row
) -> Json:
    """Returns the rows from the parameter `after` on, at most `limit` and ROWS_MOST, and where the next page begins.
    Raises RequestRefused."""
    first = request.number("after", 0, 10**9)
    end = first + (min(request.number("limit", ROWS_MOST, 2**31), ROWS_MOST) or 1)
    next_page = end if end < len(rows) else None
    return {"rows": [show(row) for row in rows[first:end]], "size": len(rows), "next": next_page}


def check(request: HttpRequest, proxy: FrontProxy | None = None) -> None:
    """Takes the path of --console-url from the request's. Raises RequestRefused.

    The Host must be that of the URL, or one of this machine: a page of another site, whose name its owner lets point to
    127.0.0.1, has its own name there. Such a page may not use the login that a browser has at the proxy, either, so the
    Origin must be one of them, too."""
    if request.method not in ("GET", "POST"):
        raise RequestRefused(405, "the console only reads: GET, or POST of a question")
    if not _is_ours(request.headers.get("Host", ""), proxy):
        raise RequestRefused(
            421, f"open the console as {proxy.url if proxy else 'http://localhost:PORT'}"
        )
    origin = request.headers.get("Origin")
    if origin is not None and not _is_ours(origin.partition("://")[2], proxy):
        raise RequestRefused(403, "a page of another site asks")
    if proxy and request.path.startswith(f"{proxy.path}/"):
        request.path = request.path.removeprefix(proxy.path)


def _is_ours(host: str, proxy: FrontProxy | None) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in LOCAL_HOSTS or (proxy is not None and host.removesuffix(":443") == proxy.host)


def bearer_token(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
