"""`lockstep job watch` and `job logs`, with an API server whose answers are given one after the other."""

import argparse
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from central.cli.exit_codes import CannotDo
from central.cli.jobs import follow
from central.cli.jobs.api import JOBS, Api
from central.kube.resource_paths import ResourcePath
from central.kube.transport.http_client import StatusError, Stream, Unreachable
from tests.central.cli.run_cli import member, mpi

Json = dict[str, Any]
NODE = {"nodeName": "n"}


class Output(Stream):
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks

    def __exit__(self, *_: object) -> None:
        pass


class Answers(Api):
    """jobs: what is found of the job, and pods: its pods, each time that somebody asks; the last ones stay."""

    def __init__(
        self,
        *jobs: Json | None,
        pods: tuple[list[Json], ...] = ([],),
        changes: tuple[tuple[str, Json], ...] = (),
        output: Callable[[str], Iterable[bytes]] = lambda _: [b"line\n"],
    ) -> None:
        self._jobs, self._pods = list(jobs), list(pods)
        self._changes, self._output = changes, output
        self.asked: list[Json] = []

    def follow(self) -> None:
        """Is never away."""

    def get(self, kind: ResourcePath, name: str) -> Json:
        assert (kind, name) == (JOBS, "j")
        return job()

    def find(self, kind: ResourcePath, name: str) -> Json | None:
        if kind != JOBS:
            return None
        return self._jobs.pop(0) if len(self._jobs) > 1 else self._jobs[0]

    def all(self, kind: ResourcePath, *, everywhere: bool = False, **query: str) -> list[Json]:
        return self._pods.pop(0) if len(self._pods) > 1 else self._pods[0]

    def changes(self, kind: ResourcePath, **_: Any) -> Iterator[tuple[str, Json]]:
        yield from self._changes

    def stream(self, path: str) -> Stream:
        query = {key: value for key, [value] in parse_qs(urlsplit(path).query).items()}
        self.asked.append({"pod": urlsplit(path).path.split("/")[-2], **query})
        return Output(self._output(query["container"]))


def job(uid: str = "uid", phase: str = "Running", **status: Any) -> Json:
    made = mpi("j", phase, **status)
    return {**made, "metadata": {**made["metadata"], "uid": uid}}


def pod(index: int, *containers: str, task: str = "mpiworker", **states: Json) -> Json:
    """states: of containers, by name, with their restart counts."""
    statuses = [
        {"name": name, "restartCount": found.pop("restarts", 0), "state": found}
        for name, found in states.items()
    ]
    made = member("j", task, index, containerStatuses=statuses)
    named = [{"name": name, "image": "i"} for name in containers or ("main",)]
    made["metadata"] |= {"namespace": "default", "uid": f"uid-{task}-{index}"}
    return {**made, "spec": {**NODE, "containers": named}}


def ran(**more: Any) -> Json:
    return {"terminated": {"exitCode": 0}, **more}


def logs(api: Answers, **flags: Any) -> int:
    options = {"task": "", "container": "", "tail": None, "follow": False}
    options |= {"timestamps": False, "previous": False, "chosen": "j"}
    return follow.logs(api, argparse.Namespace(**{**options, **flags}))


def test_a_watch_says_what_changes_of_this_job_until_it_is_deleted() -> None:
    said: list[str] = []
    changes = (
        ("LISTED", {key: value for key, value in job().items() if key != "status"}),
        ("MODIFIED", job("earlier", phase="Aborted")),
        ("MODIFIED", job(phase="Pending")),
        ("DELETED", job("earlier", phase="Aborted")),
        ("MODIFIED", job(running=2, pending=1, failed=0)),
        ("DELETED", job(running=2, pending=1)),
    )
    with pytest.raises(CannotDo, match="job j was deleted"):
        follow.watch_job(Answers(changes=changes), "j", said.append)
    assert [line.split("  ")[1] for line in said] == ["Pending", "Running (1 pending, 2 running)"]


@pytest.mark.parametrize(("phase", "code"), [("Completed", 0), ("Terminated", 1)])
def test_a_watch_ends_with_the_job(
    phase: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    state: Json = {"state": {"phase": phase, "message": "\x1b[2J"}}
    api = Answers(changes=(("LISTED", job(**state)),))
    assert follow.watch(api, argparse.Namespace(chosen="j")) == code
    shown = capsys.readouterr().out
    assert phase in shown
    assert "\x1b" not in shown


def test_containers_are_named_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    api = Answers(pods=([pod(0, "a", "b", a=ran(), b=ran()), pod(1)],))
    assert logs(api) == 0
    assert capsys.readouterr().out.splitlines() == [
        "[mpiworker-0/a] line",
        "[mpiworker-0/b] line",
        "[mpiworker-1] line",
    ]
    assert logs(api, container="b") == 0
    assert capsys.readouterr().out == "[mpiworker-0/b] line\n"


def test_the_server_gets_the_flags() -> None:
    api = Answers(pods=([pod(0)],))
    logs(api)
    logs(api, tail=0, timestamps=True, previous=True)
    name = {"pod": "j-mpiworker-0", "container": "main"}
    assert api.asked == [name, {**name, "tailLines": "0", "timestamps": "true", "previous": "true"}]


def test_lines_are_whole_wherever_the_output_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    chunks = [b"a\nb", b"c\n\n\xe2\x82", b"\xac", b"\nend"]
    logs(Answers(pods=([pod(0)],), output=lambda _: chunks))
    head = "[mpiworker-0]"
    assert capsys.readouterr().out.splitlines() == [
        *(f"{head} a", f"{head} bc", f"{head} ", f"{head} €", f"{head} end")
    ]


def test_why_there_is_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    without_node = pod(3)
    del without_node["spec"]["nodeName"]
    failed = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such file"}}
    fine = pod(1, main=ran())
    unknown = pod(2)
    del unknown["status"]["containerStatuses"]
    pods = [pod(0, "main", "other", other=ran(), main=failed), fine, unknown, without_node]
    api = Answers(pods=(pods,), output=lambda _: [])
    assert logs(api) == 0
    assert "j-mpiworker-3" not in {each["pod"] for each in api.asked}
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "[mpiworker-0/main] no output: Error (3): no such file",
        "[mpiworker-3] no output: the pod has no node yet (lockstep job view j says why)",
    ]


def test_the_output_of_a_container_that_failed_says_why_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = {"terminated": {"exitCode": 3, "reason": "Error"}}
    logs(Answers(pods=([pod(0, main=failed)],)))
    assert capsys.readouterr() == ("[mpiworker-0] line\n", "")


@pytest.mark.parametrize(
    "error",
    [
        StatusError(400, "BadRequest", "container a is waiting"),
        CannotDo("container a is waiting"),
        Unreachable("container a is waiting"),
    ],
)
def test_a_refusal_is_said_of_its_container_and_the_others_are_read(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(container: str) -> list[bytes]:
        if container == "a":
            raise error
        return [b"line\n"]

    logs(Answers(pods=([pod(0, "a", "b")],), output=output))
    said = capsys.readouterr()
    assert said.err == "[mpiworker-0/a] no output: container a is waiting\n"
    assert said.out == "[mpiworker-0/b] line\n"


@pytest.mark.parametrize(
    ("task", "sentence"), [("", "job j has no pods"), ("ps", "task ps of job j has no pods")]
)
def test_without_pods_that_is_said(task: str, sentence: str) -> None:
    with pytest.raises(CannotDo, match=f"^{sentence}$"):
        logs(Answers(pods=([pod(0)] if task else [],)), task=task)


@pytest.mark.parametrize("last", [job(phase="Completed"), job("another"), None])
def test_output_is_followed_until_the_job_is_over(
    last: Json | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run of a container once, as soon as it has started; what another task or container prints is not asked
    for."""
    monkeypatch.setattr(follow, "POLL_S", 0.001)
    others = [pod(0, task="mpimaster", main=ran())]
    rounds = [
        [pod(0, "main", "side", side=ran(), main={"waiting": {}}), *others],
        [pod(0, "main", "side", side=ran(), main={"running": {}}), *others],
        [pod(0, "main", "side", side=ran(), main={"running": {}}), *others],
        [pod(0, "main", "side", side=ran(), main=ran(restarts=1)), *others],
    ]
    api = Answers(job(), job(), job(), last, pods=tuple(rounds))
    assert logs(api, follow=True, task="mpiworker", container="main") == 0
    asked = {"pod": "j-mpiworker-0", "container": "main", "follow": "true", "timestamps": "true"}
    assert api.asked == [asked, asked]
    assert capsys.readouterr().out == "[mpiworker-0/main] line\n" * 2


def test_a_container_that_never_starts_is_not_asked_for() -> None:
    api = Answers(job(phase="Failed"), pods=([pod(0, main={"waiting": {}})],))
    assert logs(api, follow=True) == 0
    assert api.asked == []


def test_what_is_not_read_yet_when_the_job_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0.001)
    asked_again = threading.Event()

    class Slow(Answers):
        def find(self, kind: ResourcePath, name: str) -> Json | None:
            if self.asked:
                asked_again.set()
            return super().find(kind, name)

    def output(_: str) -> Iterator[bytes]:
        asked_again.wait(30)
        yield b"line\n"

    assert (
        logs(Slow(job(phase="Failed"), pods=([pod(0, main=ran())],), output=output), follow=True)
        == 0
    )
    assert asked_again.is_set()
    assert capsys.readouterr().out == "[mpiworker-0] line\n"


def test_an_output_that_is_cut_is_read_on_without_a_line_lost_or_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of one second, a line that was cut itself, and an attempt to read on that fails, too."""
    monkeypatch.setattr(follow, "POLL_S", 0.001)
    lines = [
        b"2026-01-01T00:00:00.5Z zero\n",
        b"2026-01-01T00:00:01Z one\n",
        b"2026-01-01T00:00:01.099999999Z two\n",
        b"2026-01-01T00:00:01.1Z three\n",
        b"2026-01-01T00:00:02Z 2026-01-01T00:00:00Z is its text\n",
    ]

    def broken(*parts: bytes) -> Iterator[bytes]:
        yield from parts
        raise Unreachable("truncated")

    def refused() -> Iterator[bytes]:
        yield from ()
        raise StatusError(503, "", "starting")

    outputs = iter(
        [broken(*lines[:3], lines[3][:-3]), refused(), broken(*lines[1:4]), iter([*lines[1:]])]
    )
    api = Answers(job(), job(phase="Completed"), pods=([pod(0, main={"running": {}})],))
    monkeypatch.setattr(api, "_output", lambda _: next(outputs))
    assert logs(api, follow=True, tail=9) == 0
    assert [(each.get("sinceTime"), each.get("tailLines")) for each in api.asked] == [
        (None, "9"),
        *[("2026-01-01T00:00:01Z", None)] * 3,
    ]
    head = "[mpiworker-0]"
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines() == [
        f"{head} zero",
        f"{head} one",
        f"{head} two",
        f"{head} three",
        f"{head} 2026-01-01T00:00:00Z is its text",
    ]


def test_an_output_that_is_always_cut_ends_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    monkeypatch.setattr(follow, "MOST_CUTS", 3)

    def refused(_: str) -> Iterator[bytes]:
        yield from ()
        raise StatusError(502, "", "the node's kubelet does not answer")

    api = Answers(job(phase="Failed"), pods=([pod(0, main=ran())],), output=refused)
    assert logs(api, follow=True) == 0
    assert len(api.asked) == 3
    assert capsys.readouterr().err == (
        "[mpiworker-0] no output: the node's kubelet does not answer\n"
    )
