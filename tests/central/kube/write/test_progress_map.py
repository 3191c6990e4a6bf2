"""States of coordinators in ConfigMaps, against the in-memory API server: which of two coordinators may write, and what
is refused."""

import json
import random

import pytest

from central.kube.transport.http_client import Client
from central.kube.write import progress_map
from central.kube.write.progress_map import NotStored, OtherCoordinator, Progress, ProgressOf

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def owner(client: Client) -> ProgressOf:
    """A Job that exists: what has an owner that does not exist is collected."""
    pod = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    job = {"metadata": {"name": "train"}, "spec": {"tasks": [{"replicas": 1, "template": pod}]}}
    reply = client.request("POST", JOBS, json.dumps(job).encode())
    assert reply.ok, reply.error()
    return ProgressOf("default", "train", reply.json()["metadata"]["uid"])


def progress(run: int, pod: str = "pod-a", state: bytes = b"\x00state") -> Progress:
    return Progress(run, pod, state)


def test_what_was_saved_is_loaded_and_goes_with_the_job(client: Client, owner: ProgressOf) -> None:
    assert progress_map.load(client, owner) is None
    version = progress_map.save(client, owner, progress(1))
    version = progress_map.save(client, owner, progress(1, state=b"more"), version)
    assert progress_map.load(client, owner) == progress(1, state=b"more")
    (reference,) = client.get(f"{MAPS}/train-progress")["metadata"]["ownerReferences"]
    named = (reference["kind"], reference["name"], reference["uid"])
    assert named == ("Job", "train", owner.uid)


@pytest.mark.parametrize("knows_version", [True, False], ids=["own-version", "restarted-scheduler"])
@pytest.mark.parametrize("later", [progress(2), progress(2, "pod-b"), progress(1, "pod-b")])
def test_the_later_coordinator_keeps_it(
    client: Client, owner: ProgressOf, later: Progress, knows_version: bool
) -> None:
    """The same run in another pod is not later: who wrote first keeps it."""
    version = progress_map.save(client, owner, progress(1))
    if later.run == 1:
        with pytest.raises(OtherCoordinator):
            progress_map.save(client, owner, later)
        return
    progress_map.save(client, owner, later)
    with pytest.raises(OtherCoordinator, match="started later"):
        progress_map.save(client, owner, progress(1), version if knows_version else "")
    assert progress_map.load(client, owner) == later


def test_a_lost_answer_is_no_other_coordinator(client: Client, owner: ProgressOf) -> None:
    """The write succeeded, and its version is not known."""
    version = progress_map.save(client, owner, progress(1))
    progress_map.save(client, owner, progress(1, state=b"second"), version)
    progress_map.save(client, owner, progress(1, state=b"third"), version)
    found = progress_map.load(client, owner)
    assert found is not None
    assert found.state == b"third"


def test_one_that_was_deleted_is_made_again(client: Client, owner: ProgressOf) -> None:
    version = progress_map.save(client, owner, progress(3))
    assert client.request("DELETE", f"{MAPS}/train-progress").ok
    progress_map.save(client, owner, progress(3), version)
    assert progress_map.load(client, owner) == progress(3)


def test_a_map_of_somebody_else_is_left_alone(client: Client, owner: ProgressOf) -> None:
    body = b'{"metadata": {"name": "train-progress"}, "data": {"mine": "yes"}}'
    assert client.request("POST", MAPS, body).ok
    for call in (
        lambda: progress_map.load(client, owner),
        lambda: progress_map.save(client, owner, progress(1)),
    ):
        with pytest.raises(NotStored, match=r"train-progress exists and is not this Job's"):
            call()
    assert client.get(f"{MAPS}/train-progress")["data"] == {"mine": "yes"}


@pytest.mark.parametrize(
    "damage",
    [
        b'{"binaryData": {"state": null}}',
        b'{"data": {"run": "many"}}',
        b'{"data": {"run": "-1"}}',
        b'{"data": {"run": "18446744073709551616"}}',  # no field of a reply holds it
        b'{"binaryData": {"state": "%%%"}}',
    ],
)
def test_a_damaged_one_is_named(client: Client, owner: ProgressOf, damage: bytes) -> None:
    progress_map.save(client, owner, progress(1))
    kind = "application/merge-patch+json"
    assert client.request("PATCH", f"{MAPS}/train-progress", damage, kind).ok
    with pytest.raises(NotStored, match="delete it to start again"):
        progress_map.load(client, owner)


def test_a_state_that_is_too_large_names_the_other_store(client: Client, owner: ProgressOf) -> None:
    most = random.Random(1).randbytes(progress_map.STATE_BYTES)
    version = progress_map.save(client, owner, progress(1, state=most))
    with pytest.raises(NotStored, match="--store=file:/PATH"):
        progress_map.save(client, owner, progress(1, state=most + b"1"), version)
    found = progress_map.load(client, owner)
    assert found is not None
    assert found.state == most
