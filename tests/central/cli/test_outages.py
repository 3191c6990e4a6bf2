"""Commands that follow something, while the API server is away: a real socket that is closed and opened again."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.cli import patient_client
from central.cli.exit_codes import UNREACHABLE
from central.cli.main import main
from tests.central.cli.run_cli import JOBS, PODS, mpi
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.eventually import eventually

Json = dict[str, Any]
GONE = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}
ENDED = {
    "error 410": lambda: Answer(lines=iter([{"type": "ERROR", "object": GONE}])),
    "error 500": lambda: Answer(
        lines=iter([{"type": "ERROR", "object": {**GONE, "code": 500, "message": "no leader"}}])
    ),
    "error without a code": lambda: Answer(
        lines=iter([{"type": "ERROR", "object": {"kind": "Status", "message": "no leader"}}])
    ),
    "410": lambda: failure(410, "too old"),
    "429": lambda: failure(429, "slow down"),
    "503": lambda: failure(503, "starting"),
    "no answer": lambda: Answer(hang_up=True),
    "end": lambda: Answer(lines=iter([])),
}


def job(version: int, phase: str) -> Json:
    made = mpi("j", phase)
    meta = {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": str(version)}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **made, "metadata": meta}


class Cluster:
    """Serves one Job. watches and lists: what is answered before the usual; a watch ends at once otherwise."""

    def __init__(self) -> None:
        self.job = job(1, "Running")
        self.watches: deque[Callable[[], Answer]] = deque()
        self.lists: deque[Callable[[], Answer]] = deque()
        self.gets: deque[Callable[[], Answer]] = deque()

    def answer(self, call: Call) -> Answer:
        if call.path == f"{JOBS}/j":
            return self.gets.popleft()() if self.gets else Answer(body=self.job)
        if call.path == PODS:
            return Answer(body={"metadata": {}, "items": []})
        if call.path != JOBS:
            return failure(404, "no such path")
        if "watch=1" in call.query:
            if self.watches:
                return self.watches.popleft()()
            return Answer(lines=iter([{"type": "MODIFIED", "object": self.job}]))
        if self.lists:
            return self.lists.popleft()()
        version = self.job["metadata"]["resourceVersion"]
        return Answer(body={"metadata": {"resourceVersion": version}, "items": [self.job]})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_client, "PAUSES_S", (0.001, 0.01))
    monkeypatch.setattr("central.cli.jobs.api.REWATCH_S", 0.001)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Scripted]:
    with Scripted(cluster.answer) as served:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": served.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "users": [{"name": "c", "user": {}}],
            "current-context": "c",
        }
        (tmp_path / "kubeconfig").write_text(repr(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield served


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("how", ENDED)
def test_a_watch_that_ends_is_begun_again(
    how: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended() -> Answer:
        cluster.job = job(7, "Completed")
        return ENDED[how]()

    cluster.watches += [ENDED[how], ended]
    assert main(["job", "watch", "j"]) == 0
    output = capsys.readouterr()
    assert [line.split()[1] for line in output.out.splitlines()] == ["Running", "Completed"]
    assert output.err == "", "it answers the list"


@pytest.mark.usefixtures("server")
def test_an_outage_is_said_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    def completed() -> Answer:
        cluster.job = job(7, "Completed")
        return failure(503, "starting")

    away = (lambda: Answer(hang_up=True), lambda: failure(503, "starting"), completed)
    cluster.watches.append(lambda: failure(503, "starting"))
    cluster.lists += [lambda: failure(429, "slow down")] * 2
    cluster.lists += away
    assert main(["job", "watch", "j"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].endswith(": slow down; trying again")


def test_a_server_that_is_closed_and_opened_again(
    server: Scripted, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """The watch is open when the server closes; nothing listens meanwhile."""
    watched, closed = threading.Event(), threading.Event()

    def hanging() -> Iterator[Json]:
        watched.set()
        closed.wait(30)
        yield from ()

    cluster.watches.append(lambda: Answer(lines=hanging()))

    code: list[int] = []
    thread = threading.Thread(target=lambda: code.append(main(["job", "watch", "j"])))
    thread.start()
    assert watched.wait(30)
    server.__exit__()
    closed.set()
    said: list[str] = []

    def told() -> bool:
        said.append(capfd.readouterr().err)
        return "trying again" in "".join(said)

    eventually(told)
    cluster.job = job(9, "Failed")
    with Scripted(cluster.answer, port=server.port):
        thread.join()
    assert code == [1]
    said.append(capfd.readouterr().err)
    assert "".join(said).count("trying again") == 1


def test_a_wrong_host_fails_at_once(server: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server.__exit__()
    for words in (["job", "watch", "j"], ["job", "logs", "-f", "j"], ["job", "list", "-w"]):
        assert main(words) != 0
        [said] = capsys.readouterr().err.splitlines()
        assert "the API server does not answer" in said
        assert "trying again" not in said


@pytest.mark.usefixtures("server")
def test_an_outage_that_lasts_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patient_client, "PATIENCE_S", 0.0)
    cluster.watches.append(lambda: failure(503, "starting"))
    found = Answer(body={"metadata": {"resourceVersion": "1"}, "items": [cluster.job]})
    cluster.lists += [lambda: found, lambda: failure(503, "starting")]
    assert main(["job", "watch", "j"]) == UNREACHABLE
    assert capsys.readouterr().err.splitlines() == ["lockstep: starting"]


@pytest.mark.usefixtures("server")
def test_a_command_that_asks_once_does_not_wait(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.lists.append(lambda: failure(503, "starting"))
    assert main(["job", "list"]) != 0
    assert "starting" in capsys.readouterr().err


@pytest.mark.usefixtures("server")
def test_a_list_that_is_watched_goes_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until the server forbids it, since it has no end of its own."""

    def changed() -> Answer:
        cluster.job = job(7, "Completed")
        return Answer(hang_up=True)

    cluster.watches += [changed, lambda: failure(403, "forbidden")]
    found = Answer(body={"metadata": {"resourceVersion": "1"}, "items": [cluster.job]})
    cluster.lists += [lambda: found, lambda: failure(503, "starting")]
    assert main(["job", "list", "-w", "-o", "yaml"]) != 0
    output = capsys.readouterr()
    assert [line for line in output.out.splitlines() if "phase: " in line] == [
        "    phase: Running",
        "    phase: Completed",
    ]
    assert ": starting; trying again\n" in output.err


@pytest.mark.usefixtures("server")
def test_an_outage_is_not_the_end_of_a_job_whose_output_is_followed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("central.cli.jobs.follow.POLL_S", 0.001)
    found = Answer(body=cluster.job)
    cluster.gets += [lambda: found, lambda: found, lambda: failure(503, "starting")]
    cluster.gets += [lambda: found, lambda: Answer(body=job(2, "Completed"))]
    assert main(["job", "logs", "-f", "j"]) == 0
    assert not cluster.gets
    assert capsys.readouterr().err.count("; trying again\n") == 1
