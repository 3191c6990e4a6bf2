"""What a PUT or PATCH makes of an object, and lists that are read in pages. Pure."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from central.model.json_types import Json
from central.standalone import api_errors, patches
from central.standalone.object_store import Item
from central.standalone.served_kinds import Resource


def changed(method: str, kind: str, resource: Resource, old: Json, body: Any) -> Json:
    if method == "PUT":
        if not isinstance(body, dict):
            raise api_errors.bad_request("the body is not an object")
        return body
    if "json-patch+json" in kind:
        return patches.json_patch(old, body)
    if not isinstance(body, dict):
        raise api_errors.bad_request("the patch is not an object")
    if "strategic-merge-patch" in kind or "apply-patch" in kind:
        if resource.custom and "apply-patch" not in kind:
            message = "strategic merge patches are not understood by custom resources"
            raise api_errors.ApiError(415, "UnsupportedMediaType", message)
        return dict(patches.strategic(old, body))
    if "merge-patch+json" in kind:
        return dict(patches.merge(old, body))
    raise api_errors.ApiError(
        415, "UnsupportedMediaType", f"{kind or 'no content type'} is not a patch"
    )


class Pages:
    """The rest of each list as it was, under a token: all pages are of one moment."""

    def __init__(self, token: Callable[[], str], *, most: int = 64) -> None:
        self._token = token
        self._most = most
        self._kept: OrderedDict[str, tuple[list[Item], int]] = OrderedDict()

    def keep(self, items: list[Item], version: int) -> str:
        token = self._token()
        self._kept[token] = (items, version)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return token

    def at(self, token: str) -> tuple[list[Item], int]:
        """Raises Refused (410) where newer lists have pushed it out."""
        if token not in self._kept:
            why = "The provided continue parameter is too old: list again without it"
            raise api_errors.gone(why)
        return self._kept[token]
