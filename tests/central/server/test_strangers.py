"""Clients without a token at the port of a real scheduler process. Meanwhile a good agent reports within a second,
on its connection and on a new one, the probes answer, and the process stays small and quiet."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from statistics import median

import grpc
import orjson
import pytest

from central.kube.transport.http_client import Client, connect
from central.standalone.agent_process import agent_pod, token
from central.standalone.apiserver import StandaloneApi
from protos.names import AGENT_ACCOUNT, NAMESPACE
from protos.stubs.fleet_pb2_grpc import FleetStub
from tests.central.scheduler_process import auth, report
from tests.fakes import strangers
from tests.fakes.eventually import eventually
from tests.fakes.strangers import ATTACKS, Attack, Target, attacked
from tests.own_memory import own_bytes

pytestmark = pytest.mark.slow

ROUNDS = 6
WITHIN_S = 1.0  # and twenty times what it takes without strangers, which is 10 ms, with a new connection 50 ms
AT_LAST_S = 60.0  # on a busy machine; the median counts
MEMORY_MIB = 150  # more than before the attack
LOG_LINES = 60


class Scheduler:
    """`lockstep central` beside an API in memory, with the token of an agent."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.log = folder / "log"
        self.api = api = stack.enter_context(StandaloneApi())
        config = folder / "kubeconfig"
        api.write_kubeconfig(config)
        client = connect(str(config))
        stack.callback(client.close)
        self.token = _agent_token(client)
        command = [sys.executable, "-m", "central", "central", "--kubeconfig", str(config)]
        command += ["--tls-dir", str(folder / "tls"), "--listen", "127.0.0.1:0"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--metrics-listen", "127.0.0.1:0"], stdout=out, stderr=out
            )
        stack.callback(self._stop)
        eventually(lambda: "initial sync complete" in self.log.read_text())
        ca = (folder / "tls" / "ca.crt").read_bytes()
        self.target = Target(f"127.0.0.1:{self._port('gRPC')}", ca)
        self.web = f"http://127.0.0.1:{self._port('metrics and probes')}"

    def _port(self, what: str) -> int:
        text = self.log.read_text()
        _, _, rest = text.partition(f"serving {what} on port ")
        return int(rest.split(";")[0].split()[0])

    def _stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def lines(self) -> int:
        return len(self.log.read_text().splitlines())

    def memory_mib(self) -> float:
        return own_bytes(self.process.pid) / 2**20

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.web + path, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _agent_token(client: Client) -> str:
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": AGENT_ACCOUNT}}),
    ):
        assert client.request("POST", path, orjson.dumps(body)).ok
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    made = client.request("POST", pods, orjson.dumps(agent_pod(NAMESPACE, "n1")))
    return token(client, NAMESPACE, AGENT_ACCOUNT, made.json())


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        yield Scheduler(Path(folder), stack)


def good_agent(scheduler: Scheduler, rounds: int, pause_s: float = 0.3) -> list[float]:
    """Seconds that its reports took: each twice, on one connection and on a new one. Fails if one is refused, or if
    a probe does not answer."""
    took = []
    with scheduler.target.channel() as channel:
        for number in range(rounds):
            took.append(reported(scheduler, lambda: nullcontext(channel)))
            took.append(reported(scheduler, scheduler.target.channel))
            assert scheduler.answers("/healthz"), f"in round {number}"
            assert scheduler.process.poll() is None, scheduler.log.read_text()[-3000:]
            time.sleep(pause_s)
    return took


def reported(
    scheduler: Scheduler, connected: Callable[[], AbstractContextManager[grpc.Channel]]
) -> float:
    """Seconds until a report is taken. An agent tries again too, and waits for a connection: strangers may have taken
    the last place among those whose handshake has not ended."""
    began = time.monotonic()
    while True:
        with connected() as channel:
            try:
                FleetStub(channel).Report(
                    report(), metadata=auth(scheduler.token), timeout=10, wait_for_ready=True
                )
                return time.monotonic() - began
            except grpc.RpcError:
                if time.monotonic() - began > AT_LAST_S:
                    raise


def bounded(
    scheduler: Scheduler,
    attacks: tuple[Attack, ...],
    clients: int,
    rounds: int,
    pause_s: float = 0.3,
) -> None:
    usual_s = median(good_agent(scheduler, 2))
    lines, memory, files = scheduler.lines(), scheduler.memory_mib(), scheduler.files()
    with attacked(scheduler.target, *attacks, clients=clients):
        took = good_agent(scheduler, rounds, pause_s)
    text = scheduler.log.read_text()
    assert median(took) < max(WITHIN_S, 20 * usual_s), took
    assert scheduler.lines() - lines <= LOG_LINES, text[-3000:]
    assert scheduler.memory_mib() - memory < MEMORY_MIB
    assert "Traceback" not in text, text[-3000:]
    # Nothing is left of them.
    eventually(lambda: scheduler.files() < files + 20, 30, f"{scheduler.files()} files")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_kind_of_attack(scheduler: Scheduler, attack: Attack) -> None:
    few = attack in (strangers.idle, strangers.half_open, strangers.dripping)
    bounded(scheduler, (attack,), 1 if few else 4, ROUNDS)


def test_all_attacks_at_once(scheduler: Scheduler) -> None:
    bounded(scheduler, ATTACKS, 1, ROUNDS)


@pytest.mark.timeout(600)
@pytest.mark.skipif("LOCKSTEP_LONG" not in os.environ, reason="five minutes: LOCKSTEP_LONG=1")
def test_half_open_connections_for_five_minutes(scheduler: Scheduler) -> None:
    attacks = (strangers.idle, strangers.half_open, strangers.dripping)
    bounded(scheduler, attacks, 1, 60, pause_s=5.0)


def test_connections_are_counted(scheduler: Scheduler) -> None:
    with attacked(scheduler.target, strangers.idle):
        eventually(lambda: 'connections{state="unknown"} 200.0' in metrics(scheduler))
        eventually(lambda: 'connections_closed_total{cause="no token"}' in metrics(scheduler))


def test_the_api_server_gets_no_flood(scheduler: Scheduler) -> None:
    """Of tokens that can't be valid: none at all."""
    good_agent(scheduler, 1)
    before = reviews(scheduler)
    with attacked(scheduler.target, strangers.random_tokens, strangers.malformed, clients=4):
        good_agent(scheduler, 5)
    assert reviews(scheduler) - before < 5  # the agent's own


def metrics(scheduler: Scheduler) -> str:
    with urllib.request.urlopen(scheduler.web + "/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def reviews(scheduler: Scheduler) -> float:
    """Requests of the scheduler that create something."""
    text = metrics(scheduler)
    name = "lockstep_api_requests_total"
    found = [line for line in text.splitlines() if line.startswith(name) and '"POST"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_a_known_agent_outlives_the_api_server(tmp_path: Path) -> None:
    """While strangers ask."""
    with ExitStack() as stack:
        scheduler = Scheduler(tmp_path, stack)
        usual_s = median(good_agent(scheduler, 2))
        scheduler.api.stop()
        with attacked(scheduler.target, strangers.forged_tokens, clients=4):
            took = good_agent(scheduler, 5)
    assert median(took) < max(WITHIN_S, 20 * usual_s), took
