"""The states of coordinators in ConfigMaps of an API server in memory."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import orjson
import pytest

from central.controllers.job.training_plan import TrainingPlan
from central.kube.transport.http_client import Client, connect
from central.kube.write.progress_map import MOST_RUN, STATE_BYTES
from central.server.grpc.auth import CallRefused
from central.server.grpc.training_states import LOADS, SAVES, TrainingStates
from central.standalone.apiserver import StandaloneApi
from protos.stubs import fleet_pb2 as pb

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
TASK = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
MAP = "/api/v1/namespaces/default/configmaps/train-progress"


class Coordinators:
    """The pods p1 and p2 of one Job, and the scheduler that keeps their states."""

    def __init__(self, client: Client) -> None:
        self.client = client
        made = {"metadata": {"name": "train"}, "spec": {"minAvailable": 1, "tasks": [TASK]}}
        reply = client.request("POST", JOBS, orjson.dumps(made))
        self.uid = reply.json()["metadata"]["uid"]
        self.plan = TrainingPlan("default", "train", self.uid, 1, (), (), 1)
        self.states = TrainingStates(client)

    def save(self, run: int, state: bytes, pod: str = "p1") -> pb.StateAck:
        update = pb.StateUpdate(run=run, state=state)
        return asyncio.run(self.states.save(update, self.plan, pod))

    def load(self, pod: str = "p1") -> pb.StateReply:
        return asyncio.run(self.states.load(self.plan, pod))

    def refused(self, run: int, state: bytes) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(CallRefused) as error:
            self.save(run, state)
        return error.value.code, error.value.why


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Coordinators]:
    with StandaloneApi() as api:
        client = connect(str(api.write_kubeconfig(tmp_path / "kubeconfig")))
        yield Coordinators(client)
        client.close()


def test_what_was_saved_is_loaded(pods: Coordinators) -> None:
    assert pods.load() == pb.StateReply()
    assert pods.save(1, b"one") == pods.save(1, b"two") == pb.StateAck()
    assert pods.load() == pb.StateReply(run=1, state=b"two")
    owners = pods.client.get(MAP)["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [pods.uid]
    pods.states = TrainingStates(pods.client)  # of the next leader
    assert pods.load() == pb.StateReply(run=1, state=b"two")
    pods.save(1, b"three")
    assert pods.load().state == b"three"


def test_a_later_coordinator_wins(pods: Coordinators) -> None:
    pods.save(1, b"one")
    pods.save(2, b"two", "p2")
    later = "another coordinator of this Job started later"
    assert pods.refused(1, b"late") == (grpc.StatusCode.FAILED_PRECONDITION, later)
    assert pods.load().state == b"two"


def test_a_run_that_is_none(pods: Coordinators) -> None:
    wrong = grpc.StatusCode.INVALID_ARGUMENT, f"run: must be from 1 to {MOST_RUN}"
    assert pods.refused(0, b"") == pods.refused(MOST_RUN + 1, b"") == wrong
    pods.save(MOST_RUN, b"")


def test_a_state_that_is_too_large(pods: Coordinators) -> None:
    code, why = pods.refused(1, b"x" * (STATE_BYTES + 1))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert why.startswith(f"the state has {STATE_BYTES + 1} bytes")


def test_each_coordinator_has_its_rate(pods: Coordinators) -> None:
    for number in range(SAVES[0].burst):
        pods.save(1, str(number).encode())
    often = grpc.StatusCode.RESOURCE_EXHAUSTED, "states are written too often"
    assert pods.refused(1, b"more") == often
    pods.save(2, b"other", "p2")
    for _ in range(LOADS[0].burst):
        pods.load()
    with pytest.raises(CallRefused, match=often[1]):
        pods.load()
    assert pods.load("p2").state == b"other"


def test_no_more_calls_wait_than_may(pods: Coordinators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("central.server.grpc.training_states.CALLS", 2)

    async def many() -> list[pb.StateReply | BaseException]:
        calls = (pods.states.load(pods.plan, f"p{at}") for at in range(3))
        return await asyncio.gather(*calls, return_exceptions=True)

    for _ in range(2):  # each call gives its place back
        *good, bad = asyncio.run(many())
        assert good == [pb.StateReply()] * 2
        assert isinstance(bad, CallRefused)
        why = "too many states are written"
        assert (bad.code, bad.why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, why)


def test_an_api_server_that_is_away(tmp_path: Path) -> None:
    with StandaloneApi() as api:
        pods = Coordinators(connect(str(api.write_kubeconfig(tmp_path / "kubeconfig"))))
    code, why = pods.refused(1, b"x")
    pods.client.close()
    assert (code, why.startswith("the API server: ")) == (grpc.StatusCode.UNAVAILABLE, True)
