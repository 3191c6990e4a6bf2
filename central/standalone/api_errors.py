"""Errors of the API server, as the Status objects that Kubernetes clients expect. Pure."""

from collections.abc import Iterable

from central.model.json_types import Json
from protos.common.picked import picked


class ApiError(Exception):
    """Raised anywhere below the HTTP handler to answer a request with an error."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            **picked(self, "message reason details code"),
        }


def _of(kind: str, group: str, name: str) -> tuple[str, Json]:
    """The object in words, and as details."""
    what = f"{kind}.{group}" if group else kind
    return f'{what} "{name}"', {"name": name, "group": group, "kind": kind}


def not_found(plural: str, group: str, name: str) -> ApiError:
    what, details = _of(plural, group, name)
    return ApiError(404, "NotFound", f"{what} not found", details)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def exists(plural: str, group: str, name: str) -> ApiError:
    what, details = _of(plural, group, name)
    return ApiError(409, "AlreadyExists", f"{what} already exists", details)


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    what, details = _of(plural, group, name)
    return ApiError(409, "Conflict", f"Operation cannot be fulfilled on {what}: {why}", details)


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def future_version(asked: int, current: int) -> ApiError:
    """The client knows a version that is yet to come, as after the restore of an older etcd."""
    message = f"Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def invalid(kind: str, group: str, name: str, causes: Iterable[tuple[str, str]]) -> ApiError:
    """causes: (field, what is wrong with it)."""
    found = [
        {"reason": "FieldValueInvalid", "field": field, "message": why} for field, why in causes
    ]
    listed = ", ".join(f"{cause['field']}: {cause['message']}" for cause in found)
    what, details = _of(kind, group, name)
    return ApiError(422, "Invalid", f"{what} is invalid: {listed}", {**details, "causes": found})
