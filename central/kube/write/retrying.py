"""One request whose failure may be temporary."""

from collections.abc import Callable
from typing import Any

import orjson

from central.kube.transport.http_client import Client, Reply, Unreachable


class Retry(Exception):
    """The same request may succeed later."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        """after_s: at least this long, as the server asks."""
        super().__init__(why)
        self.why = why
        self.after_s = after_s


def call(
    client: Client,
    method: str,
    path: str,
    body: Any = None,
    content_type: str = "application/json",
    *,
    is_final: Callable[[Reply], bool] = lambda _: False,
) -> Reply:
    """The reply, if repeating the request soon would not change it; otherwise raises Retry. is_final:
    replies that are not retried although their status says so."""
    content = orjson.dumps(body) if body is not None else None
    try:
        reply = client.request(method, path, content, content_type)
    except Unreachable as error:
        raise Retry(str(error)) from error
    if (reply.status in {401, 408, 429} or reply.status >= 500) and not is_final(reply):
        raise Retry(reply.error().message, reply.retry_after_s)
    return reply
