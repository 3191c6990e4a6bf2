"""The gRPC service for the scheduler's other replicas: a standby reads the leader's history, page by page. Only the
scheduler's own ServiceAccount may call it, since a history names the pods of every namespace."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from central.model.identity import Identity
from central.server.grpc.auth import Authenticator, CallRefused, Context, GuardedCall
from protos.names import CENTRAL_ACCOUNT
from protos.stubs import fleet_pb2 as pb

SERVICE = "lockstep.v1.Replicas"
AT_ONCE = 2  # calls
Page = TypeVar("Page", pb.AllocationPage, pb.PicturePage)


class HistorySource(Protocol):
    """Called from a worker thread. Raises OSError while the history can't be read."""

    def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage: ...
    def pictures(self, after: int) -> pb.PicturePage: ...


class ReplicaService:
    """source: None, where no history is kept. namespace: the scheduler's."""

    def __init__(
        self, source: HistorySource | None, authenticator: Authenticator, namespace: str
    ) -> None:
        self._source, self._auth = source, authenticator
        self._account = f"system:serviceaccount:{namespace}:{CENTRAL_ACCOUNT}"
        self._reading = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        calls = {
            "Allocations": GuardedCall(
                "user", pb.AllocationPageQuery, self.allocations, self._unfit
            ),
            "Pictures": GuardedCall("user", pb.PicturePageQuery, self.pictures, self._unfit),
        }
        server.add_generic_rpc_handlers((self._auth.handlers(SERVICE, calls),))

    def _unfit(self, caller: Identity) -> str:
        return "" if caller.user == self._account else f"only {self._account} may read the history"

    async def allocations(
        self, request: pb.AllocationPageQuery, caller: Identity, context: Context
    ) -> pb.AllocationPage:
        return await self._read(
            lambda source: source.allocations(request.after_row, request.ended_since)
        )

    async def pictures(
        self, request: pb.PicturePageQuery, caller: Identity, context: Context
    ) -> pb.PicturePage:
        return await self._read(lambda source: source.pictures(request.after))

    async def _read(self, ask: Callable[[HistorySource], Page]) -> Page:
        source = self._source
        if source is None:
            why = "the leader keeps no history"
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, why)
        if self._reading >= AT_ONCE:
            why = "other replicas are reading the history; try again"
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        self._reading += 1
        try:
            return await asyncio.to_thread(ask, source)
        except OSError as error:
            why = f"the history can't be read now: {error}"
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, why) from error
        finally:
            self._reading -= 1
