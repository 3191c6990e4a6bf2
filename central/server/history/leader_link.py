"""A standby's connection to the leader's Replicas service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from central.server.grpc.replica_service import SERVICE
from central.server.history.history_copier import NoAnswer, NothingToCopy
from protos.stubs import fleet_pb2 as pb

TIMEOUT_S = 20.0
PAGE_BYTES = 8 << 20
_NEVER = (
    grpc.StatusCode.UNIMPLEMENTED,  # an older version
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)


@dataclass(frozen=True, slots=True)
class LeaderAddress:
    server: str  # HOST:PORT
    ca: bytes  # PEM
    server_name: str  # in its certificate
    token_file: str  # of this replica's ServiceAccount


class _Link:
    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),)

    def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage:
        query = pb.AllocationPageQuery(after_row=after_row, ended_since=ended_since)
        page: pb.AllocationPage = self._call("Allocations", query, pb.AllocationPage)
        return page

    def pictures(self, after: int) -> pb.PicturePage:
        page: pb.PicturePage = self._call(
            "Pictures", pb.PicturePageQuery(after=after), pb.PicturePage
        )
        return page

    def _call(self, method: str, query: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(query).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return call(query, metadata=self._metadata, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}"
            raise (NothingToCopy if error.code() in _NEVER else NoAnswer)(why) from error


@contextmanager
def leader_link(to: LeaderAddress) -> Iterator[_Link]:
    """Raises NothingToCopy without a token."""
    try:
        token = Path(to.token_file).read_text().strip()
    except (OSError, ValueError) as error:
        raise NothingToCopy(f"{to.token_file}: no token for the leader ({error})") from error
    options = [
        ("grpc.ssl_target_name_override", to.server_name),
        ("grpc.max_receive_message_length", PAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    credentials = grpc.ssl_channel_credentials(to.ca)
    with grpc.secure_channel(to.server, credentials, options) as channel:
        yield _Link(channel, token)
