"""Lists of the API server, page by page, within bounded memory: a page whose answer has more than PAGE_BYTES is not
read to its end but asked for again with half as many objects, since the API server cuts pages by their number only.

Design: docs/design/api-server.md
"""

from collections.abc import Iterator
from urllib.parse import quote

from central.kube.transport.connection import TooLong
from central.kube.transport.http_client import Client
from central.model.json_types import Json

PAGE = 1000  # objects
PAGE_BYTES = 8 << 20  # of a page with more than one object; one has at most about 3 MiB


def pages(
    client: Client, path: str, most: int = PAGE, *, metadata_only: bool = False
) -> Iterator[Json]:
    """Yields each page as it is parsed. most: objects of a page. Raises StatusError, Unreachable."""
    limit, token = most, ""
    while True:
        query = f"limit={limit}" + (f"&continue={quote(token, safe='')}" if token else "")
        try:
            page = client.get(
                f"{path}{'&' if '?' in path else '?'}{query}",
                metadata_only=metadata_only,
                most_bytes=PAGE_BYTES if limit > 1 else None,
            )
        except TooLong:
            limit //= 2
            continue
        yield page
        token = str((page.get("metadata") or {}).get("continue") or "")
        if not token:
            return
        limit = min(most, limit + max(1, limit // 4))
