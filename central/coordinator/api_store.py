"""The coordinator's state in a ConfigMap of the Job, which the scheduler writes: the coordinator has no right on the
API server. All sections are one compressed text, written whole each time, so writes are few.

Design: docs/design/coordinator.md
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import orjson

from central.controllers.training.stored_state import UnreadableState
from central.coordinator.scheduler_endpoint import SchedulerEndpoint
from central.coordinator.state_store import MOST_SECTION, CannotStore, Fenced
from central.model.inflate import inflated
from central.model.json_types import ReadOnlyJson
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import TrainingStub

_CALL_S = 10.0
_LEVEL = 6


class ApiStore:
    """A store at the scheduler. Its methods block. An answer that promises durability waits for the next write, at
    most apart_s and the duration of the write."""

    durable, before_telling = True, False
    apart_s, writes_all = 1.0, True

    def __init__(self, endpoint: SchedulerEndpoint) -> None:
        self._endpoint = endpoint
        self._channel = grpc.secure_channel(
            endpoint.address, grpc.ssl_channel_credentials(endpoint.ca)
        )
        self._stub = TrainingStub(self._channel)
        self._sections: dict[str, ReadOnlyJson] = {}

    def load(self) -> dict[str, ReadOnlyJson]:
        reply = self._ask(self._stub.LoadState, pb.StateRequest())
        self._sections = _unpack(reply.state) if reply.run else {}
        return dict(self._sections)

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        self._sections.update(sections)
        state = zlib.compress(orjson.dumps(self._sections), _LEVEL)
        self._ask(self._stub.SaveState, pb.StateUpdate(run=run, state=state))

    def close(self) -> None:
        self._channel.close()

    def _ask(self, call: Callable[..., Any], request: object) -> Any:
        try:
            return call(request, metadata=self._endpoint.metadata(), timeout=_CALL_S)
        except grpc.RpcError as error:
            why = f"--store=api: {error.details() or error.code()}"
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise Fenced(why) from None
            raise CannotStore(why) from None
        except (OSError, ValueError) as error:
            raise CannotStore(f"--store=api: the token for the scheduler: {error}") from error


def _unpack(state: bytes) -> dict[str, ReadOnlyJson]:
    """Raises UnreadableState."""
    try:
        if (text := inflated(state, MOST_SECTION)) is None:
            raise UnreadableState(f"the stored state is cut off or above {MOST_SECTION} bytes")
        found = orjson.loads(text)
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise UnreadableState(f"the stored state: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableState("the stored state is not an object")
    return found
