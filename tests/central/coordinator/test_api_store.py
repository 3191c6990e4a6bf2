"""A coordinator whose state the scheduler keeps: while the API server refuses, nothing is called durable, and what was
done meanwhile is stored when it takes writes again. A later coordinator ends the earlier one."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from central.controllers.training.generation import MembershipRules
from central.controllers.training.stored_state import SCHEMA, StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.coordinator.api_store import ApiStore
from central.coordinator.saving import Saving
from central.coordinator.scheduler_endpoint import SchedulerEndpoint
from central.coordinator.state_store import CannotStore, Fenced
from central.server import tls
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import TrainingServicer, add_TrainingServicer_to_server

OWNER = (0, 1)


class Keeper(TrainingServicer):
    """The scheduler's part: keeps one state, or refuses."""

    def __init__(self) -> None:
        self.kept = pb.StateReply()
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.asked = 0

    def LoadState(self, request: pb.StateRequest, context: Any) -> pb.StateReply:  # noqa: N802  # gRPC's name
        return self.kept

    def SaveState(self, request: pb.StateUpdate, context: Any) -> pb.StateAck:  # noqa: N802  # gRPC's name
        self.asked += 1
        if self.refusal is not None:
            context.abort(*self.refusal)
        self.kept = pb.StateReply(run=request.run, state=request.state)
        return pb.StateAck()

    def Plan(self, request: pb.PlanRequest, context: Any) -> pb.PlanReply:  # noqa: N802  # gRPC's name
        return pb.PlanReply()

    def Report(self, request: pb.TrainingReport, context: Any) -> pb.TrainingAck:  # noqa: N802  # gRPC's name
        return pb.TrainingAck()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[tuple[Keeper, ApiStore]]:
    issued = tls.issue("team", datetime.now(UTC))
    made, server = Keeper(), grpc.server(ThreadPoolExecutor(2))
    add_TrainingServicer_to_server(made, server)
    credentials = grpc.ssl_server_credentials([(issued.key, issued.certificate)])
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    (tmp_path / "token").write_text("a-token")
    store = ApiStore(SchedulerEndpoint(f"localhost:{port}", issued.ca, tmp_path / "token"))
    yield made, store
    store.close()
    server.stop(None).wait()


def state_with_a_lease() -> tuple[StoredState, LeaseKey]:
    state = StoredState("team/train/uid", MembershipRules())
    state.read({}, 0.0)
    queue = state.tasks.create("q", QueueSettings(), TaskSource.of_range(4, 1))
    [task] = queue.lease(time.monotonic(), OWNER, 0, 1)["tasks"]
    return state, LeaseKey(OWNER, 0, task["task"], task["attempt"])


def test_what_is_saved_is_read_by_versions_without_journals_too(
    keeper: tuple[Keeper, ApiStore],
) -> None:
    _, store = keeper
    state, key = state_with_a_lease()
    store.save(1, state.changes(0.0, whole=True))
    state.tasks["q"].finish(time.monotonic(), key, "a result")
    store.save(1, state.changes(1.0, whole=True))
    found = store.load()
    assert found["meta"] == {"schema": SCHEMA, "job": "team/train/uid", "run": 1}
    assert not [name for name in found if name.startswith("journal/")]
    again = StoredState("team/train/uid", MembershipRules())
    again.read(found, 0.0)
    assert again.tasks["q"].summary() == state.tasks["q"].summary()


def test_the_api_server_refuses(keeper: tuple[Keeper, ApiStore]) -> None:
    scheduler, store = keeper
    scheduler.refusal = (grpc.StatusCode.UNAVAILABLE, "the API server: 503 etcd is full")

    async def story() -> None:
        state, key = state_with_a_lease()
        saving = Saving(state, store)
        writing = asyncio.create_task(saving.run())
        state.tasks["q"].finish(time.monotonic(), key)
        assert not await saving.saved(10.0), "it is not called durable"
        assert saving.trouble == "--store=api: the API server: 503 etcd is full"
        assert saving.not_durable_since is not None
        assert scheduler.kept.run == 0
        scheduler.refusal = None
        until = time.monotonic() + 60.0
        while not await saving.saved(10.0):
            assert time.monotonic() < until
        assert not saving.trouble
        again = StoredState("team/train/uid", MembershipRules())
        again.read(store.load(), 0.0)
        assert key.task in again.tasks["q"].done, "what was done meanwhile is there"
        writing.cancel()

    asyncio.run(story())


def test_a_later_coordinator_has_written(keeper: tuple[Keeper, ApiStore]) -> None:
    """A conflict of the ConfigMap's version that is another coordinator's write."""
    scheduler, store = keeper
    scheduler.refusal = (grpc.StatusCode.FAILED_PRECONDITION, "a coordinator started later")

    async def story() -> None:
        state, _ = state_with_a_lease()
        saving = Saving(state, store)
        await saving.run()  # it ends
        assert (await saving.fenced).endswith("a coordinator started later")

    asyncio.run(story())
    assert scheduler.asked == 1
    with pytest.raises(Fenced):
        store.save(1, {})


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT]
)
def test_other_refusals_may_be_tried_again(
    keeper: tuple[Keeper, ApiStore], code: grpc.StatusCode
) -> None:
    scheduler, store = keeper
    scheduler.refusal = (code, "why")
    with pytest.raises(CannotStore, match="--store=api: why"):
        store.save(1, {})
