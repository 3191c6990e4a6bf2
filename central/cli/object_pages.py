"""The objects of one kind that the API server lists, page by page, up to a bound."""

from urllib.parse import urlencode

from central.kube.resource_paths import ResourcePath
from central.kube.transport.http_client import Client
from central.model.json_types import Json

PAGE = 500  # objects per request


def listed(client: Client, path: ResourcePath, most: int) -> tuple[list[Json], bool]:
    """The first objects, with apiVersion and kind, and whether these are all. Raises StatusError and Unreachable."""
    head = {"apiVersion": path.api_version, "kind": path.kind}
    found: list[Json] = []
    token = ""
    while len(found) < most:
        query = {"limit": str(PAGE), **({"continue": token} if token else {})}
        page = client.get(f"{path.path()}?{urlencode(query)}")
        found += [{**each, **head} for each in page.get("items") or () if isinstance(each, dict)]
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return found, True
    return found[:most], False
