"""`lockstep job run --wait`: exit codes, and what can never start."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Client
from tests.central.cli.run_cli import JOBS, PODS, Lockstep, member
from tests.central.cli.test_job_warnings import cluster
from tests.fakes.eventually import eventually

__all__ = ["cluster"]  # the fixture


@contextmanager
def controller(
    client: Client, *states: dict[str, Any], jobs: int = 1, where: str = JOBS
) -> Iterator[None]:
    """Writes these states into each new Job, one after the other."""

    def work() -> None:
        eventually(lambda: len(client.get(where)["items"]) >= jobs)
        for state in states:
            for job in client.get(where)["items"]:
                changed = orjson.dumps({**job, "status": {"state": state}})
                path = f"{where}/{job['metadata']['name']}/status"
                assert client.request("PUT", path, changed).ok

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("states", "code", "last"),
    [
        (({"phase": "Running"}, {"phase": "Completed"}), 0, "Completed"),
        (({"phase": "Failed", "message": "exit 3"},), 1, "Failed: exit 3"),
        (({"phase": "Aborted"},), 1, "Aborted"),
        (
            ({"phase": "Pending", "message": "can never start: no node has so many"},),
            1,
            "can never start: no node has so many",
        ),
    ],
)
def test_the_exit_code_says_how_it_ended(
    states: tuple[dict[str, Any], ...], code: int, last: str, lockstep: Lockstep, client: Client
) -> None:
    with controller(client, *states):
        output = lockstep("job", "run", "j", "-i", "x", "--wait", code=code)
    assert output.startswith("job default/j created\n")
    assert output.rstrip().endswith(last)


@pytest.mark.parametrize(("phase", "code"), [("Completed", 0), ("Failed", 1)])
def test_follow_ends_with_the_job(
    phase: str, code: int, lockstep: Lockstep, client: Client, put: Callable[[str, Any], Any]
) -> None:
    ran = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    put(PODS, member("j", "worker", 0, containerStatuses=[ran]))
    with controller(client, {"phase": "Running"}, {"phase": phase}):
        output = lockstep("job", "run", "j", "-i", "x", "--follow", code=code)
    assert output.startswith("job default/j created\n[worker-0] ")


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("flags", [("-q", "nope"), ("--priority", "nope"), ("-g", "9")])
def test_nothing_is_created_that_cannot_start(
    flags: tuple[str, ...], lockstep: Lockstep, client: Client
) -> None:
    output = lockstep("job", "run", "j", "-i", "x", "--wait", *flags, code=2)
    assert output.rstrip().endswith("; nothing was created")
    assert not client.get(JOBS)["items"]


def test_all_jobs_of_a_file_are_waited_for(
    lockstep: Lockstep, client: Client, tmp_path: Any
) -> None:
    manifest = tmp_path / "jobs.yaml"
    texts = [lockstep("job", "run", name, "-i", "x", "--dry-run") for name in ("a", "b")]
    manifest.write_text("---\n".join(texts))
    with controller(client, {"phase": "Running"}, {"phase": "Completed"}, jobs=2):
        output = lockstep("job", "run", "-f", str(manifest), "--wait")
    for name in ("a", "b"):
        assert f"job default/{name} created" in output
        assert any(
            line.startswith(f"job {name}: ") and line.endswith("Completed")
            for line in output.splitlines()
        )


@pytest.mark.parametrize("flag", ["--wait", "--follow"])
def test_a_job_of_another_namespace_is_waited_for(
    flag: str, lockstep: Lockstep, client: Client, put: Callable[[str, Any], Any], tmp_path: Any
) -> None:
    put("/api/v1/namespaces", {"metadata": {"name": "team"}})
    manifest = tmp_path / "job.yaml"
    manifest.write_text(lockstep("job", "run", "j", "-i", "x", "-n", "team", "--dry-run"))
    with controller(client, {"phase": "Completed"}, where=JOBS.replace("default", "team")):
        output = lockstep("job", "run", "-f", str(manifest), flag)
    assert output.startswith("job team/j created\n")
