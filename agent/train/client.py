"""Requests to the coordinator: JSON over HTTP or HTTPS with a bearer token, one connection per thread."""

from __future__ import annotations

import http.client
import json
import math
import random
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Answer = dict[str, Any]
MOST_ANSWER = 64 << 20  # bytes
_TIMEOUT_S, _LEAST_TIMEOUT_S = 10.0, 1.0  # of one request
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 3.0
# RecursionError: of an answer that nests too deep
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError, RecursionError)


class CoordinatorError(Exception):
    """The coordinator could not be asked, or refused."""


class Unreachable(CoordinatorError):
    """Raised for a missing answer, or for one that asks to retry later (429, 503)."""


class RequestRefused(CoordinatorError):
    """The request is wrong, or the token is."""

    def __init__(self, status: int, path: str, body: Answer) -> None:
        super().__init__(f"{path}: {status}: {body.get('error', 'no reason given')}")
        self.status, self.body = status, body


class Stale(RequestRefused):
    """409: what the caller believes is out of date."""

    @property
    def must_join(self) -> bool:
        return bool(self.body.get("join"))


class CoordinatorClient:
    """Speaks to one coordinator. The token and the certificate are read again for each connection."""

    def __init__(self, url: str, *, token_file: str = "", ca_file: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f'LOCKSTEP_COORDINATOR="{url}": must be https://HOST:PORT or http://HOST:PORT'
            )
        self.url = url
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._token_file, self._ca_file = token_file, ca_file
        self._thread = threading.local()
        self.answered_at = time.monotonic()  # when the coordinator last answered any thread

    def get(
        self, path: str, query: Mapping[str, Any], timeout_s: float = _TIMEOUT_S
    ) -> Answer | None:
        """Requests the path; None for an empty answer (204)."""
        text = urlencode({key: value for key, value in query.items() if value is not None})
        return self._ask("GET", f"{path}?{text}" if text else path, None, timeout_s)

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = _TIMEOUT_S) -> Answer:
        return self._ask("POST", path, json.dumps(body, allow_nan=False), timeout_s) or {}

    def insist(self, path: str, body: Mapping[str, Any], within_s: float | None = None) -> Answer:
        """Post until there is an answer; after `within_s` Unreachable is raised. None: without end."""
        end = math.inf if within_s is None else time.monotonic() + within_s
        pause_s = _FIRST_PAUSE_S
        while True:
            left_s = max(_LEAST_TIMEOUT_S, end - time.monotonic())
            try:
                return self.post(path, body, min(_TIMEOUT_S, left_s))
            except Unreachable:
                if time.monotonic() + pause_s > end:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(_MOST_PAUSE_S, pause_s * 2)

    def _ask(self, method: str, path: str, body: str | None, timeout_s: float) -> Answer | None:
        fresh = getattr(self._thread, "connection", None) is None
        try:
            return self._once(method, path, body, timeout_s)
        except _NO_ANSWER as error:
            self.close()
            if fresh or isinstance(error, TimeoutError):
                raise Unreachable(f"{self.url}{path}: {error!r}") from error
        try:  # the server may have closed a connection that was idle
            return self._once(method, path, body, timeout_s)
        except _NO_ANSWER as error:
            self.close()
            raise Unreachable(f"{self.url}{path}: {error!r}") from error

    def _once(self, method: str, path: str, body: str | None, timeout_s: float) -> Answer | None:
        connection = self._connection(timeout_s)
        headers = {"Content-Type": "application/json", **self._thread.headers}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read(MOST_ANSWER)
        if answer.status < 500:  # what stands between may answer 502 to 504 for it
            self.answered_at = time.monotonic()
        if answer.will_close:
            self.close()
        if answer.status == 204:
            return None
        decoded = json.loads(content) if content else {}
        found: Answer = decoded if isinstance(decoded, dict) else {}
        where = path.partition("?")[0]
        if answer.status == 409:
            raise Stale(answer.status, where, found)
        if answer.status in (429, 503) or answer.status >= 500:
            raise Unreachable(f"{self.url}{where}: {answer.status}: {found.get('error', '')}")
        if answer.status != 200:
            raise RequestRefused(answer.status, where, found)
        return found

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._thread, "connection", None)
        if found is None:
            found = self._connect(timeout_s)
            self._thread.connection = found
            self._thread.headers = self._authorization()
        found.timeout = timeout_s
        if found.sock is not None:
            found.sock.settimeout(timeout_s)
        return found

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=context
        )

    def token(self) -> str:
        """Returns the Job's token; "": it has none."""
        return Path(self._token_file).read_text().strip() if self._token_file else ""

    def _authorization(self) -> dict[str, str]:
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._thread, "connection", None)
        self._thread.connection = None
        if connection is not None:
            connection.close()
