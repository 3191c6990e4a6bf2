"""`lockstep coordinate` as a process, over real sockets, killed and started again."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.coordinator_members import Member
from tests.central.coordinator.coordinator_process import CoordinatorProcess, MemberClient, all_live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_members_agree_over_tls_and_outlive_the_coordinator(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/state/q.db"
    with CoordinatorProcess(tmp_path, secure=True, most="2", store=store) as server:
        assert server.client().get("/v1/status", token="wrong-token-of-length")[0] == 401
        members = [MemberClient(server, number) for number in range(2)]
        live = all_live(members)
        assert (live["generation"], live["size"], live["state"]) == (1, 2, "live")
        server.kill()
        server.restart()
        again = [MemberClient(server, number) for number in range(2)]
        assert again[0].generation()["members"] == live["members"]
        again[1].http.ok("/v1/leave", {**again[1].me, "code": 1, "message": "out of memory"})
        after = again[0].generation(1, wait=10)
        assert (after["generation"], after["size"], after["state"]) == (2, 1, "proposed")


def test_what_was_answered_as_done_stays_done(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/q.db"
    with CoordinatorProcess(tmp_path, most="1", store=store) as server:
        member = MemberClient(server, 0)
        all_live([member])
        member.http.ok("/v1/queue", {"queue": "q", "range": {"records": 95, "size": 10}})
        ask = {**member.me, "queue": "q", "epoch": 0}
        first = member.http.ok("/v1/lease", {**ask, "most": 4})["tasks"]
        assert all(
            one["name"] in {f"{t}0-{t}9" for t in range(1, 9)} | {"0-9", "90-94"} for one in first
        )
        key = {name: first[0][name] for name in ("task", "attempt")}
        member.http.ok("/v1/done", {**ask, **key, "result": "part-0"})
        server.kill()
        server.restart()
        member = MemberClient(server, 0)
        assert member.http.ok("/v1/done", {**ask, **key}) == {}  # the same answer again
        summary = member.http.get("/v1/epoch?queue=q")[1]
        assert (summary["done"], summary["todo"] + summary["leased"]) == (1, 9)
        results = member.http.get("/v1/results?queue=q&epoch=0")[1]["results"]
        assert [(one["task"], one["result"]) for one in results] == [(first[0]["task"], "part-0")]
        left = member.http.ok("/v1/lease", {**ask, "most": 64})["tasks"]
        assert first[0]["task"] not in {one["task"] for one in left}


def test_a_restore_makes_later_tasks_todo_again(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/q.db"
    with CoordinatorProcess(tmp_path, most="1", store=store) as server:
        member = MemberClient(server, 0)
        number = all_live([member])["generation"]
        post = member.http.ok
        post("/v1/queue", {"queue": "q", "commit": True, "range": {"records": 4, "size": 1}})
        ask = {**member.me, "queue": "q", "epoch": 0}
        tasks = post("/v1/lease", {**ask, "most": 3})["tasks"]
        for task in tasks[:2]:
            post("/v1/done", {**ask, "task": task["task"], "attempt": task["attempt"]})
        begun = post("/v1/checkpoint/begin", {**member.me, "generation": number, "step": 2})
        assert begun["name"] == f"ckpt-2-{number}"
        assert member.http.get("/v1/checkpoint/latest") == (204, b"")
        name = {**member.me, "name": begun["name"]}
        part = {**name, "rank": 0, "parts": 1, "digest": "d", "bytes": 5}
        assert post("/v1/checkpoint/complete", {**name, "data": {"step": 2}})["missing"] == 1
        post("/v1/checkpoint/part", part)
        assert post("/v1/checkpoint/complete", {**name, "data": {"step": 2}})["complete"]
        post("/v1/done", {**ask, "task": tasks[2]["task"], "attempt": tasks[2]["attempt"]})
        server.kill()
        server.restart()
        member = MemberClient(server, 0)
        latest = member.http.get("/v1/checkpoint/latest")[1]
        assert (latest["name"], latest["data"]) == (begun["name"], {"step": 2})
        member.http.ok("/v1/checkpoint/restore", {**member.me, "name": latest["name"]})
        summary = member.http.get("/v1/epoch?queue=q")[1]
        assert (summary["done"], summary["todo"]) == (2, 2)
        again = member.http.ok("/v1/lease", {**ask, "most": 4})["tasks"]
        assert tasks[2]["task"] in {one["task"] for one in again}


def test_without_a_store_members_join_again_above_their_generation(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, most="1") as server:
        member = MemberClient(server, 0)
        assert all_live([member])["generation"] == 1
        server.kill()
        server.restart()
        member = MemberClient(server, 0)
        status, answer = member.http.get("/v1/generation?after=1&member=0&incarnation=1")
        assert (status, answer["join"]) == (409, True)
        member.join()
        assert member.generation(1, wait=5)["generation"] == 2


def test_a_connection_over_tls_costs_little_memory(tmp_path: Path) -> None:
    """asyncio alone keeps 256 KiB for each: 512 members would cost twice what the pod asks for."""
    with CoordinatorProcess(tmp_path, secure=True) as server:
        before = server.memory()
        for _ in range(100):
            assert server.client().get("/v1/status")[0] == 200
        assert (server.memory() - before) / 100 < 64 << 10


def test_long_lists_of_members_do_not_stay_in_memory(tmp_path: Path) -> None:
    """Each is told 200 members, in 30 KiB. What is encrypted at once would stay with its connection."""
    count = 200
    options = {"most": str(count), "least": str(count), "join_wait": "300", "silent": "300"}
    with CoordinatorProcess(tmp_path, secure=True, **options) as server:
        before = server.memory()
        after = asyncio.run(_memory_with(server, count))
        assert (after - before) / count < 44 << 10


async def _memory_with(server: CoordinatorProcess, count: int) -> int:
    assert server.context is not None
    members = [Member(number, server.port, server.context) for number in range(count)]
    for start in range(0, count, 32):
        await asyncio.gather(*(one.begin() for one in members[start : start + 32]))
    await asyncio.gather(*(one.live() for one in members))
    found = server.memory()
    await asyncio.gather(*(one.close() for one in members))
    return found


def test_it_ends_when_the_job_does(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, most="1", linger="0") as server:
        member = MemberClient(server, 0)
        all_live([member])
        member.http.ok("/v1/leave", {**member.me, "code": 0, "message": ""})
        assert server.process.wait(30) == 0


def test_it_fails_when_members_are_missing_for_too_long(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, most="1", linger="0", below="1") as server:
        member = MemberClient(server, 0)
        all_live([member])
        member.http.ok("/v1/leave", {**member.me, "code": 1, "message": "out of memory"})
        assert server.process.wait(30) == 1
        assert "0 of at least 1 members for 1 s" in server.log()


def test_a_second_coordinator_stops_the_first(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/q.db"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with CoordinatorProcess(tmp_path / "a", most="1", store=store) as first:
        with CoordinatorProcess(tmp_path / "b", most="1", store=store):
            MemberClient(first, 0).join()
            assert first.process.wait(30) == 2
        assert "started later" in first.log()


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--store", "redis://x", '"redis://x" is none of api, file:PATH and none'),
        ("--least", "0", '"0" is not a number from 1'),
        ("--least", "9", "--least 9 is above --most 4"),
        ("--replica", "2", "--spares 3 is not a multiple of --replica 2"),
        ("--job", "train", '--job: "train" is not NAMESPACE/NAME/UID'),
        ("--token-file", "/nowhere", "--token-file /nowhere: No such file or directory"),
        ("--listen", "127.0.0.1:x", "--listen 127.0.0.1:x"),
    ],
)
def test_wrong_options_are_one_sentence(
    tmp_path: Path, option: str, value: str, sentence: str
) -> None:
    (tmp_path / "token").write_text("a-token-of-some-length")
    given = {
        "--job": "a/b/c",
        "--token-file": str(tmp_path / "token"),
        "--most": "4",
        "--spares": "3",
    }
    options = [text for pair in {**given, option: value}.items() for text in pair]
    command = [sys.executable, "-m", "central", "coordinate", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_two_jobs_with_the_same_endpoint(tmp_path: Path) -> None:
    """The second one cannot listen, and says so; its members, which reach the first one, are strangers there. What
    trains is not disturbed."""
    with CoordinatorProcess(tmp_path, most="1") as server:
        member = MemberClient(server, 0)
        live = all_live([member])
        said = _refusal(tmp_path, "other/train/uid", f"--listen=127.0.0.1:{server.port}")
        assert said.startswith(f"lockstep: coordinate: --listen 127.0.0.1:{server.port}: ")
        assert "in use" in said
        join = {"member": 0, "incarnation": 9, "address": "stranger"}
        status, answer = server.client().post("/v1/join", join, token="that-of-the-other-job")
        assert (status, answer["error"]) == (
            401,
            "header Authorization: the token is missing or wrong",
        )
        assert member.generation()["members"] == live["members"]


def test_two_jobs_with_the_same_store(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/q.db"
    with CoordinatorProcess(tmp_path, most="1", store=store) as server:
        live = all_live([MemberClient(server, 0)])
        said = _refusal(tmp_path, "other/train/uid", f"--store={store}")
        assert "belongs to Job team/train/uid, not other/train/uid; give each Job a store" in said
        assert MemberClient(server, 0).generation()["members"] == live["members"]


def _refusal(folder: Path, job: str, option: str) -> str:
    command = [sys.executable, "-m", "central", "coordinate", f"--job={job}", "--most=1", option]
    command += [f"--token-file={folder / 'token'}"]
    if not option.startswith("--listen"):
        command.append("--listen=127.0.0.1:0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    sentences = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
    assert len(sentences) == 1
    assert "Traceback" not in done.stderr
    return sentences[0]


def test_it_fails_when_too_many_tasks_are_set_aside(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, most="1", linger="0", task_failed_most="0.1") as server:
        member = MemberClient(server, 0)
        all_live([member])
        body = {"queue": "q", "failures": 0, "range": {"records": 10, "size": 1}}
        member.http.ok("/v1/queue", body)
        for _ in range(2):
            leased = {**member.me, "queue": "q", "epoch": 0, "most": 1}
            (task,) = member.http.ok("/v1/lease", leased)["tasks"]
            assert not member.generation()["over"], "one of ten is allowed"
            who = {**member.me, "queue": "q", "epoch": 0, "task": task["task"]}
            failed = {**who, "attempt": task["attempt"], "why": "a torn file"}
            member.http.ok("/v1/failed", failed)
        assert server.process.wait(30) == 1
        assert "queue q: 2 of 10 tasks were set aside, more than 10.00%" in server.log()
        assert "a torn file" in server.log()
