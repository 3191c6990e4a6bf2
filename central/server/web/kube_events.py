"""The Kubernetes Events of a gang and its pods for the console, read with the viewer's own token and rights: the
scheduler may not read Events."""

from typing import Any
from urllib.parse import quote

from central.kube.transport import connection
from central.kube.transport.configuration import as_user
from central.kube.transport.http_client import Client, StatusError, Unreachable
from central.model.json_types import Json
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused

EVENTS_MOST, BYTES_MOST = 1000, 4 << 20  # of a page
PAGES_MOST = 20  # of a namespace, in the order of the Events' names


class KubeEvents:
    def __init__(self, api_server: dict[str, Any]) -> None:
        """api_server: its address (Client.address)."""
        self._api_server = api_server

    def answer(self, request: Request, token: str) -> Json:
        """Returns the Events of the `namespace` that are about objects with these `names`, separated by commas, the
        latest first. Raises RequestRefused."""
        namespace, names = request.text("namespace"), request.query.get("names", "").split(",")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events?limit={EVENTS_MOST}"
        client, rows, more = Client(as_user(self._api_server, token)), list[Json](), ""
        try:
            for _ in range(PAGES_MOST):
                page = client.get(f"{path}{more}", 10.0, most_bytes=BYTES_MOST)
                found = page["items"]
                rows += [
                    _row(each) for each in found if each["involvedObject"].get("name") in names
                ]
                if not (rest := page["metadata"].get("continue")):
                    break
                more = f"&continue={quote(rest, safe='')}"
        except StatusError as error:
            status = error.status if error.status in (401, 403) else 503
            raise RequestRefused(status, f"Events can't be read: {error}") from error
        except (Unreachable, connection.TooLong) as error:
            raise RequestRefused(503, f"Events can't be read: {error}") from error
        finally:
            client.close()
        return {"rows": sorted(rows, key=lambda row: row["at"], reverse=True)}


def _row(event: Json) -> Json:
    at = (
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )
    about = event["involvedObject"]
    return {
        "at": at,
        "about": f"{about.get('kind', '')} {about['name']}",
        **{name: event.get(name) or "" for name in ("type", "reason", "message")},
    }
