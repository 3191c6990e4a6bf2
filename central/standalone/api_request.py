"""A parsed request: the resource, object and subresource of its path, and its body."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from central.standalone import api_errors
from central.standalone.served_kinds import Registry, Resource

YES = ("1", "true", "True")


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in YES

    @property
    def wants_table(self) -> bool:
        return "as=Table" in self.accept

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query

    def json(self) -> Any:
        """The body; an empty one is an empty object."""
        if not self.body:
            return {}
        try:
            if "yaml" in self.content_type:
                return yaml.safe_load(self.body)
            return orjson.loads(self.body)
        except (ValueError, yaml.YAMLError) as error:
            if "protobuf" in self.content_type:
                message = "this API reads JSON and YAML only: use kubectl apply -f FILE"
                raise api_errors.ApiError(415, "UnsupportedMediaType", message) from error
            raise api_errors.bad_request(f"the body is not readable: {error}") from error


def target(registry: Registry, path: str) -> tuple[Resource, str, str, str]:
    """/apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME/SUB -> (resource, NS, NAME, SUB)."""
    steps = path.strip("/").split("/")
    if steps[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", steps[2:]
    elif steps[0] == "apis" and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        raise api_errors.no_such_path()
    namespace = ""
    # .../namespaces/NS/status is a part of the Namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0]) if rest else None
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise api_errors.no_such_path()
    name, subresource = [*rest[1:], "", ""][:2]
    if name and resource.namespaced and not namespace:
        raise api_errors.no_such_path()
    if subresource and subresource not in resource.subresources:
        raise api_errors.no_such_path()
    return resource, namespace, name, subresource
