"""The objects of one kind that the API server lists, page by page, up to a bound."""

from central.kube.resource_paths import ResourcePath
from central.kube.transport.http_client import Client
from central.kube.transport.list_pages import pages
from central.model.json_types import Json

PAGE = 500  # objects per request


def listed(client: Client, path: ResourcePath, most: int) -> tuple[list[Json], bool]:
    """The first objects, with apiVersion and kind, and whether these are all. Raises StatusError and Unreachable."""
    head = {"apiVersion": path.api_version, "kind": path.kind}
    found: list[Json] = []
    for page in pages(client, path.path(), PAGE):
        found += [{**each, **head} for each in page.get("items") or () if isinstance(each, dict)]
        if len(found) >= most and (page.get("metadata") or {}).get("continue"):
            return found[:most], False
    return found, True
