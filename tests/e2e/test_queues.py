"""A queue's status on the real API server: what its gangs use, how many there are of each phase, and its
states while it is closed and opened."""

import json
from typing import Any

import pytest

from tests.e2e.admission_cases import queue
from tests.e2e.cluster import verbs
from tests.e2e.world import World, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PODGROUPS = "podgroups.scheduling.volcano.sh"  # "podgroup" alone may be Kubernetes' own
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def test_a_queue_says_what_it_has_and_whether_it_is_open(cluster: World, namespace: str) -> None:
    name = f"q-{namespace}"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.api.get(f"{QUEUES}/{name}").get("status") or {}
        return found

    def counts(**wanted: object) -> None:
        until(f"{wanted}, not {status()}", lambda: wanted.items() <= status().items())

    def state(wanted: str) -> None:
        patch = json.dumps({"spec": {"state": wanted}})
        cluster.kubectl("patch", "queue", name, "--type=merge", "-p", patch)

    def group(gang: str, gpus: int) -> list[Any]:
        made = podgroup(gang, 1)
        made["spec"]["queue"] = name
        return [made, pod(f"{gang}-0", gpus, gang=gang)]

    try:
        cluster.apply(namespace, queue(name, capability={"nvidia.com/gpu": 4}))
        counts(state="Open", running=0, allocated={})
        cluster.apply(namespace, *group("runs", 4), *group("waits", 1))
        counts(state="Open", running=1, pending=1)
        until("what is used", lambda: status()["allocated"]["nvidia.com/gpu"] == "4")
        assert status()["allocated"]["pods"] == "1"
        sentence = cluster.podgroup(namespace, "waits")["status"]["conditions"][-1]["message"]
        assert f"queue {name} uses 4 of its capability of 4 GPUs" in sentence

        state("Closed")
        counts(state="Closing", running=1, pending=1)
        closed = f"queue {name} is closed"
        cluster.kubectl("-n", namespace, "delete", "pod", "runs-0", "--wait")
        cluster.kubectl("-n", namespace, "delete", PODGROUPS, "runs")
        until("the sentence", lambda: closed in cluster.lockstep("explain", f"{namespace}/waits"))
        counts(state="Closing", running=0, pending=1)
        state("Open")
        cluster.running(namespace, 1)
        counts(state="Open", running=1, pending=0)
        state("Closed")
        cluster.kubectl("-n", namespace, "delete", f"pod,{PODGROUPS}", "--all", "--wait")
        counts(state="Closed", running=0, pending=0, allocated={})
    finally:
        verbs.kubectl("delete", "queue", name, "--ignore-not-found")


def test_closing_a_queue_closes_those_below_it(cluster: World, namespace: str) -> None:
    org, team = f"org-{namespace}", f"team-{namespace}"

    def are(*wanted: tuple[str, str]) -> bool:
        found = [cluster.api.get(f"{QUEUES}/{name}").get("status", {}) for name in (org, team)]
        return [(each.get("state"), each.get("closedBy", "")) for each in found] == [*wanted]

    def patch(state: str) -> None:
        body = json.dumps({"spec": {"state": state}})
        cluster.kubectl("patch", "queue", org, "--type=merge", "-p", body)

    try:
        cluster.apply(namespace, queue(org), queue(team, parent=org))
        until("both to be open", lambda: are(("Open", ""), ("Open", "")))
        patch("Closed")
        until("team to be closed", lambda: are(("Closed", ""), ("Closed", org)))
        patch("Open")
        until("team to be open again", lambda: are(("Open", ""), ("Open", "")))
    finally:
        verbs.kubectl("delete", "queue", org, team, "--ignore-not-found")
