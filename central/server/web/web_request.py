"""HTTP as the console needs it: one GET or POST per connection. Pure.

head = parse_head(b"GET /api/nodes?limit=10 HTTP/1.1\\r\\nHost: localhost:9480")     # may raise RequestRefused
render(200, b"...", "text/html")
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

BODY_MOST = 64 << 10  # bytes of a question
LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "[::1]"))
REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 421: "Misdirected Request", 429: "Too Many Requests",
    411: "Length Required", 413: "Content Too Large", 431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
# Nothing but our own files and data: no inline script or style, no other host, no frame around us.
SECURITY = (
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n"
)


class RequestRefused(Exception):
    """Ends a request: with a status, and a sentence for the user."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    body_bytes: int = -1  # of a POST, at least 0; -1: a GET

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


def parse_head(head: bytes) -> Request:
    """The request line and the headers. Raises RequestRefused.

    The Host must be one of this machine: a page of another site, whose name its owner lets point to 127.0.0.1, has
    its own name there."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise RequestRefused(400, "not an HTTP/1.1 request")
    if method not in ("GET", "POST"):
        raise RequestRefused(405, "the console only reads: GET, or POST of a question")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    host = headers.get("host", "")
    if (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host) not in LOCAL_HOSTS:
        raise RequestRefused(421, "open the console as http://localhost:PORT")
    scheme, _, token = headers.get("authorization", "").partition(" ")
    path, _, query = target.partition("?")
    try:
        pairs = dict(parse_qsl(query, max_num_fields=16))
    except ValueError:
        raise RequestRefused(400, "too many parameters") from None
    token = token.strip() if scheme.lower() == "bearer" else ""
    return Request(path, pairs, token, _body_bytes(headers) if method == "POST" else -1)


def _body_bytes(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise RequestRefused(411, "the length of the body is missing (Content-Length)")
    if int(length) > BODY_MOST:
        raise RequestRefused(413, f"the body has more than {BODY_MOST >> 10} KiB")
    return int(length)


def render(status: int, body: bytes, kind: str) -> bytes:
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nServer: lockstep\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n{SECURITY}Connection: close\r\n\r\n"
    )
    return head.encode() + body


def render_stream_head() -> bytes:
    """Returns the head of server-sent events: without a length, until the connection ends."""
    return (
        f"HTTP/1.1 200 OK\r\nServer: lockstep\r\nContent-Type: text/event-stream\r\n{SECURITY}"
        "Connection: close\r\n\r\n"
    ).encode()
