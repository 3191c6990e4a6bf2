"""The least client of the API server that a test can do with."""

import contextlib
import http.client
import json
import ssl
from typing import Any

from tests.e2e.cluster.settings import CONTROL_PLANE_IP, STATE, Trouble


class Refused(Trouble):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    def __init__(self) -> None:
        pki = STATE / "pki"
        self.context = ssl.create_default_context(cafile=pki / "ca.crt")
        self.context.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        connection = http.client.HTTPSConnection(
            CONTROL_PLANE_IP, 6443, context=self.context, timeout=10
        )
        with contextlib.closing(connection):
            try:
                connection.request(
                    method, path, body and json.dumps(body), {"Content-Type": content_type}
                )
                response = connection.getresponse()
                text = response.read().decode()
            except http.client.HTTPException as error:
                raise Trouble(f"{method} {path}: {error!r}") from error
        if response.status >= 400:
            raise Refused(response.status, f"{method} {path}: {response.status} {text[:500]}")
        return json.loads(text) if text.startswith("{") else text

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def create(self, path: str, body: Any) -> None:
        """Creates it, or finds it there already."""
        try:
            self.call("POST", path, body)
        except Refused as error:
            if error.status != 409:
                raise

    def patch(self, path: str, body: Any) -> Any:
        return self.call("PATCH", path, body, "application/merge-patch+json")
