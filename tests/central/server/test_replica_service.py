"""Who may read the leader's history, and how many at once, over a real TLS socket."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import grpc
import pytest

from central.model.identity import AuthFailure, Identity, Role
from central.server.grpc import grpc_server
from central.server.grpc.auth import Authenticator
from central.server.grpc.replica_service import AT_ONCE, ReplicaService
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import ReplicasStub
from tests.central.scheduler_process import auth, credentials, refusal

CENTRAL = "system:serviceaccount:here:lockstep-central"


class Accounts:
    """The token is the name of the user."""

    def implausible(self, token: str, role: Role) -> str:
        return ""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        return Identity(token)


class Pages:
    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.broken = False
        self.going = threading.Event()
        self.inside = threading.Semaphore(0)
        self.going.set()

    def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage:
        self.asked.append((after_row, ended_since))
        self.inside.release()
        self.going.wait(30.0)
        return pb.AllocationPage()

    def pictures(self, after: int) -> pb.PicturePage:
        self.asked.append((after,))
        if self.broken:
            raise OSError("database is locked")
        return pb.PicturePage()


@contextmanager
def replicas(source: Pages | None) -> Iterator[ReplicasStub]:
    made = Authenticator(Accounts())
    service = ReplicaService(source, made, "here")
    server = grpc_server.serve("127.0.0.1:0", credentials(), [service.add_to], made)
    where = f"127.0.0.1:{server.port}"
    try:
        with grpc.secure_channel(where, grpc.ssl_channel_credentials(credentials().ca)) as channel:
            yield ReplicasStub(channel)
    finally:
        server.stop()


def test_only_the_schedulers_own_account_reads() -> None:
    source = Pages()
    with replicas(source) as stub:
        query = pb.AllocationPageQuery(after_row=3, ended_since=9)
        for user in ("jane", "system:serviceaccount:there:lockstep-central", CENTRAL + "x"):
            code, why = refusal(partial(stub.Allocations, query, metadata=auth(user)))
            assert code == grpc.StatusCode.PERMISSION_DENIED
            assert f"only {CENTRAL} may read the history" in why
        assert source.asked == []
        stub.Allocations(query, metadata=auth(CENTRAL))
        stub.Pictures(pb.PicturePageQuery(after=7), metadata=auth(CENTRAL))
        assert source.asked == [(3, 9), (7,)]


def test_a_history_that_is_not_kept_or_not_read() -> None:
    query = pb.PicturePageQuery()
    with replicas(None) as stub:
        found = refusal(lambda: stub.Pictures(query, metadata=auth(CENTRAL)))
        assert found == (grpc.StatusCode.FAILED_PRECONDITION, "the leader keeps no history")
    source = Pages()
    source.broken = True
    with replicas(source) as stub:
        for _ in range(AT_ONCE + 1):  # a failure gives its turn back
            code, why = refusal(lambda: stub.Pictures(query, metadata=auth(CENTRAL)))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert why == "the history can't be read now: database is locked"
        source.broken = False
        stub.Pictures(query, metadata=auth(CENTRAL))


@pytest.mark.timeout(60)
def test_few_read_at_once() -> None:
    source = Pages()
    source.going.clear()
    query, who = pb.AllocationPageQuery(), auth(CENTRAL)
    with replicas(source) as stub, ThreadPoolExecutor(AT_ONCE) as threads:
        calls = [threads.submit(stub.Allocations, query, metadata=who) for _ in range(AT_ONCE)]
        for _ in calls:
            assert source.inside.acquire(timeout=30.0)
        code, why = refusal(lambda: stub.Pictures(pb.PicturePageQuery(), metadata=who))
        source.going.set()
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert why == "other replicas are reading the history; try again"
        assert [call.result(30.0) for call in calls] == [pb.AllocationPage()] * AT_ONCE
        stub.Pictures(pb.PicturePageQuery(), metadata=who)
