"""A coordinator and a scheduler as processes, over TLS: the members learn of a smaller size before their pods are
deleted, and either process may be killed meanwhile."""

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from central.cli.jobs import training_page
from central.server.grpc import query_client
from protos.names import COORDINATOR_AUDIENCE
from tests.architecture.sources import ROOT
from tests.central.controllers.job.job_api import job
from tests.central.coordinator.coordinator_process import CoordinatorProcess, MemberClient
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node

Json = dict[str, Any]
PODS = "/api/v1/namespaces/ns/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
LEAST, MOST = 2, 6
CAPACITY = {"cpu": "6500m", "memory": "64Gi", "pods": "110"}


@pytest.fixture
def cluster() -> Iterator[FaultyCluster]:
    nodes = [bare_node("n0", gpus=0, capacity=CAPACITY)]
    with FaultyCluster(nodes) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        account = {"metadata": {"name": "default", "namespace": "ns"}}
        made.create("/api/v1/namespaces/ns/serviceaccounts", account)
        yield made


def elastic_job() -> Json:
    raw = job({"coordinator": 1, "worker": MOST}, name="train", cpu="1")
    raw["metadata"]["namespace"] = "ns"
    coordinator, worker = raw["spec"]["tasks"]
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    coordinator["template"] = {"spec": {"containers": [container]}}
    worker["minAvailable"] = LEAST
    arguments = ["--task=worker", "--coordinator=coordinator", "--hold=5s"]
    raw["spec"] |= {"minAvailable": LEAST + 1, "plugins": {"elastic": arguments, "svc": []}}
    raw["metadata"]["annotations"] = {"lockstep.dev/resize-cost": "1s"}
    return raw


def create_job(cluster: FaultyCluster) -> None:
    cluster.create(JOBS, elastic_job())
    cluster.wait("all to run", lambda: len(pods(cluster)) == MOST and pods(cluster, "coordinator"))


def pods(cluster: FaultyCluster, task: str = "worker") -> dict[int, Json]:
    """Running pods of a task by number."""
    found = {}
    for pod in cluster.client.get(PODS)["items"]:
        name, meta = pod["metadata"]["name"], pod["metadata"]
        if name.startswith(f"train-{task}-") and not meta.get("deletionTimestamp"):
            found[int(name.rsplit("-", 1)[1])] = pod
    return {
        number: pod
        for number, pod in found.items()
        if (pod.get("status") or {}).get("phase") == "Running"
    }


def token_of(cluster: FaultyCluster, pod: Json) -> str:
    """As the kubelet mounts it."""
    meta = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    spec = {"audiences": [COORDINATOR_AUDIENCE], "boundObjectRef": bound}
    account = pod["spec"].get("serviceAccountName") or "default"
    path = f"/api/v1/namespaces/ns/serviceaccounts/{account}/token"
    reply = cluster.client.request("POST", path, json.dumps({"spec": spec}).encode())
    assert reply.ok, reply.error()
    return str(reply.json()["status"]["token"])


def coordinator_for(
    cluster: FaultyCluster, folder: Path, store: str = "", **more: str
) -> CoordinatorProcess:
    """As the Job's pod would run it: with its Secret and its token."""
    (pod,) = pods(cluster, "coordinator").values()
    (secret,) = cluster.client.get("/api/v1/namespaces/ns/secrets")["items"]
    data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
    data |= {key: value.encode() for key, value in (secret.get("stringData") or {}).items()}
    for name in ("scheduler-address", "scheduler-ca.crt"):
        (folder / name).write_bytes(data[name])
    (folder / "scheduler-token").write_text(token_of(cluster, pod))
    return CoordinatorProcess(
        folder,
        secure=True,
        scheduler_dir=str(folder),
        scheduler_token_file=str(folder / "scheduler-token"),
        least=str(LEAST),
        most=str(MOST),
        join_wait="3",
        gather="2",
        silent="300",
        store=store or f"file:{folder}/q.db",
        **more,
    )


def member(
    server: CoordinatorProcess, number: int, pod: Json, incarnation: int = 1
) -> MemberClient:
    made = MemberClient(server, number, incarnation)
    who = {"pod": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "node": "n0"}
    made.http.ok("/v1/join", {**made.me, **who, "address": who["pod"]})
    return made


def lease_task(worker: MemberClient) -> Json:
    (task,) = worker.http.ok("/v1/lease", {**worker.me, "queue": "q", "epoch": 0})["tasks"]
    return {"epoch": 0, "task": task["task"], "attempt": task["attempt"]}


def finish_task(worker: MemberClient) -> None:
    worker.http.ok("/v1/done", {**worker.me, "queue": "q", **lease_task(worker)})


def terms(server: CoordinatorProcess) -> set[str]:
    """Of the schedulers that it has reported to while it followed their plans."""
    found = re.findall(r"reported to the scheduler of term (\d+)", server.log())
    return {*found} - {"0"}


def acknowledge(one: MemberClient) -> Json:
    """The newest generation, which it acknowledges if it is in it."""
    found: Json = one.generation()
    inside = {each["member"] for each in found["members"]} | {*found["leaving"]}
    if found["state"] == "proposed" and not found["acknowledged"] and one.member in inside:
        one.http.post("/v1/ack", {**one.me, "generation": found["generation"]})
    return found


def settle(members: dict[int, MemberClient], size: int, seconds: float = 30.0) -> Json:
    """All acknowledge until a generation of this size is live. Returns it."""
    until = time.monotonic() + seconds
    found: Json = {}
    while time.monotonic() < until:
        for one in members.values():
            found = acknowledge(one)
        if found.get("state") == "live" and found["size"] == size:
            return found
        time.sleep(0.1)
    raise AssertionError(f"no live generation of {size}: {found}")


def test_members_know_before_they_go(cluster: FaultyCluster, tmp_path: Path) -> None:
    create_job(cluster)
    with coordinator_for(cluster, tmp_path) as server:
        there = {number: member(server, number, pod) for number, pod in pods(cluster).items()}
        assert settle(there, MOST)["leaving"] == []
        with pytest.raises(AssertionError, match="is pod"):
            member(server, 3, pods(cluster)[2], incarnation=2)  # the number of another pod

        cluster.wait("the scheduler to hear", lambda: len(terms(server)) == 1)
        cluster.kill_scheduler()  # while it is away, the last plan holds
        cluster.start_scheduler()
        cluster.wait("the scheduler to answer", lambda: cluster.topology() is not None)
        cluster.wait("the next one to hear", lambda: len(terms(server)) == 2)
        service = job({"s": 2}, name="service", cpu="1")
        service["metadata"]["namespace"] = "ns"
        cluster.create(JOBS, service)

        def proposed() -> Json | None:
            found: Json = there[0].generation()
            return found if found["leaving"] else None

        cluster.wait("members to learn of it", lambda: proposed() is not None)
        leaving = set((proposed() or {})["leaving"])
        running = set(pods(cluster))
        assert leaving, "they know"
        assert leaving <= running, "and their pods still run"

        live = settle(there, MOST - len(leaving))
        assert leaving.isdisjoint(one["member"] for one in live["members"])
        cluster.wait("their pods to go", lambda: leaving.isdisjoint(pods(cluster)), 20.0)
        assert set(pods(cluster)) == {one["member"] for one in live["members"]}

        server.kill()
        server.restart()
        for one in there.values():
            if one.member not in leaving:
                again = member(server, one.member, pods(cluster)[one.member], incarnation=2)
                there[one.member] = again
        left = {number: one for number, one in there.items() if number not in leaving}
        assert settle(left, MOST - len(leaving))["generation"] > live["generation"]


def test_a_stranger_gets_no_plan(cluster: FaultyCluster, tmp_path: Path) -> None:
    """A worker of the same Job and account has a token of its own, which says which pod it is."""
    create_job(cluster)
    with coordinator_for(cluster, tmp_path) as server:
        cluster.wait("the plan to come", lambda: "plan: 6 members" in server.log())
    (tmp_path / "scheduler-token").write_text(token_of(cluster, pods(cluster)[0]))
    (tmp_path / "log").unlink()
    with CoordinatorProcess(
        tmp_path,
        scheduler_dir=str(tmp_path),
        scheduler_token_file=str(tmp_path / "scheduler-token"),
    ) as stranger:
        cluster.wait("the refusal", lambda: "is not the coordinator of" in stranger.log())
        assert "plan: " not in stranger.log()


def test_the_state_is_in_a_configmap_and_outlives_pod_and_scheduler(
    cluster: FaultyCluster, tmp_path: Path
) -> None:
    """`--store=api`: the coordinator's pod is lost with all its files, and the scheduler is killed meanwhile."""
    create_job(cluster)
    (before,) = pods(cluster, "coordinator").values()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    queue = {"queue": "q", "range": {"records": 40, "size": 10}}
    with coordinator_for(cluster, one, store="api") as first:
        worker = member(first, 0, pods(cluster)[0])
        worker.http.ok("/v1/queue", queue)
        finish_task(worker)
        cluster.kill_scheduler()
        lease = lease_task(worker)
        status, answer = worker.http.post("/v1/done", {**worker.me, "queue": "q", **lease})
        assert status == 503, "it promises nothing that is not stored"
        assert "not stored" in answer["error"]
        cluster.start_scheduler()
        cluster.wait("the scheduler to answer", lambda: cluster.topology() is not None)

        def stored() -> bool:
            return worker.http.get("/v1/status")[1]["not_durable_for_s"] is None

        cluster.wait("the state to be stored", stored, 90.0)
        assert cluster.client.request("DELETE", f"{PODS}/{before['metadata']['name']}").ok

        def replaced() -> bool:
            return any(
                one["metadata"]["uid"] != before["metadata"]["uid"]
                for one in pods(cluster, "coordinator").values()
            )

        cluster.wait("another pod of the coordinator", replaced, 90.0)
        with coordinator_for(cluster, two, store="api") as second:
            summary = second.client().get("/v1/epoch?queue=q")[1]
            assert (summary["done"], summary["tasks"]) == (2, 4)
            finish_task(member(second, 1, pods(cluster)[1]))


COUNTING = 'n=0; while sleep 0.1; do n=$((n+1)); echo $n > "$LOCKSTEP_STEP_FILE"; done'


@contextmanager
def launcher(
    server: CoordinatorProcess, number: int, pod: Json
) -> Iterator["subprocess.Popen[bytes]"]:
    """lockstep-launch as the container of a member's pod runs it, with a shell that counts."""
    issued = {"ca": server.folder / "member-ca.crt", "token": server.folder / "token"}
    issued["ca"].write_bytes(server.ca)
    (server.folder / "lockstep_train").symlink_to(ROOT / "agent/train")
    environment = {
        **os.environ,
        "PYTHONPATH": str(server.folder),
        "LOCKSTEP_COORDINATOR": f"https://localhost:{server.port}",
        "LOCKSTEP_TOKEN_FILE": str(issued["token"]),
        "LOCKSTEP_CA_FILE": str(issued["ca"]),
        "LOCKSTEP_MEMBER": str(number),
        "LOCKSTEP_POD": pod["metadata"]["name"],
        "LOCKSTEP_POD_UID": pod["metadata"]["uid"],
        "LOCKSTEP_NODE": pod["spec"]["nodeName"],
        "LOCKSTEP_ADDRESS": "127.0.0.1",
    }
    command = [sys.executable, "-m", "lockstep_train.launch", "--stop-wait=2", "--"]
    with (server.folder / "launcher.log").open("ab") as log:
        started = subprocess.Popen(
            [*command, "sh", "-c", COUNTING], env=environment, stdout=log, stderr=log
        )
    try:
        yield started
    finally:
        started.terminate()  # it ends what it started
        started.wait(30)


def test_a_launchers_steps_reach_the_page_of_the_job(
    cluster: FaultyCluster, tmp_path: Path
) -> None:
    """A process writes a file, lockstep-launch reports it to the coordinator, and that one to the scheduler."""
    create_job(cluster)
    with coordinator_for(cluster, tmp_path) as server:
        there = {number: member(server, number, pod) for number, pod in pods(cluster).items()}
        first = there.pop(5)
        first.http.ok(
            "/v1/leave", {**first.me, "code": 1, "message": "the launcher takes its place"}
        )
        with launcher(server, 5, pods(cluster)[5]) as started:

            def settled() -> bool:
                assert started.poll() is None
                for one in there.values():
                    acknowledge(one)
                found = there[0].generation()
                return bool(found["state"] == "live" and found["size"] == MOST)

            cluster.wait("a generation with the launcher's member", settled, 60.0)

            def row() -> training_page.Row | None:
                reply = cluster.explain("train", "ns")
                rows = training_page.members(reply.training) if reply is not None else []
                return next((one for one in rows if one[0] == 5), None)

            def steps() -> int:
                found = row()
                return int(str(found[2])) if found and found[2] != training_page.UNKNOWN else -1

            cluster.wait("its steps", lambda: steps() > 3, 60.0)
            known = steps()
            cluster.wait("more of them", lambda: steps() > known, 60.0)
            found = row()
            assert found is not None
            assert found[1] == 5, "its rank"
            assert str(found[3]).endswith("s"), "the time of a step"

            def trained_s() -> float:
                record = query_client.page(cluster.door, "/api/job", namespace="ns", name="train")
                return float(record["activities"].get("training", 0.0))

            cluster.wait("what its time was used for", lambda: trained_s() > 0)
