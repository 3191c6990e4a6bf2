"""Two centres as shipped: the one that decides is killed, and the other goes on."""

import threading
from collections import Counter

import pytest

from tests.e2e.world import NAMESPACE, World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def ready(cluster: World) -> set[str]:
    return {
        p["metadata"]["name"]
        for p in cluster.system_pods("lockstep-central")
        if all(s["ready"] for s in p["status"].get("containerStatuses", [{"ready": False}]))
        and "deletionTimestamp" not in p["metadata"]
    }


def test_the_leader_is_killed_and_the_other_goes_on(cluster: World, namespace: str) -> None:
    """With gangs before, meanwhile and after: each is bound once, and no GPU is given twice."""
    until("both centres to be ready", lambda: len(ready(cluster)) == 2)
    old = until("a leader", cluster.leader)
    moved: Counter[str] = Counter()
    seen: dict[str, str] = {}
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(0.1):
            pods = {
                p["metadata"]["uid"]: p["spec"].get("nodeName") for p in cluster.pods(namespace)
            }
            moved.update(uid for uid, node in seen.items() if pods.get(uid) != node)
            seen.update({uid: node for uid, node in pods.items() if node})

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(4):
            pods = [pod(f"g{number}-{rank}", 1, gang=f"g{number}") for rank in range(2)]
            cluster.apply(namespace, podgroup(f"g{number}", 2), *pods)
            if number == 1:
                kill = ("delete", "pod", old, "--grace-period=0", "--force", "--wait=false")
                cluster.kubectl("-n", NAMESPACE, *kill)
        cluster.running(namespace, 8, 90)
    finally:
        ending.set()
        looker.join()
    assert not moved
    assert disjoint(cluster.agreed(60).values())
    new = until("a leader", cluster.leader)
    assert new != old
    holder = cluster.api.get(f"{LEASES}/lockstep-central")["spec"]["holderIdentity"]
    assert holder.startswith(f"{new}_")
    until("the killed one's successor, standing by", lambda: len(ready(cluster) - {old}) == 2)
    standing_by = (ready(cluster) - {new}).pop()
    until(
        "whom it stands by for",
        lambda: f"{new}_" in cluster.kubectl("-n", NAMESPACE, "logs", standing_by),
    )
    assert "node-1" in cluster.kubectl(
        "-n", NAMESPACE, "exec", standing_by, "--", "lockstep", "topology"
    )


def test_a_leader_that_is_asked_to_go_hands_over_at_once(cluster: World, namespace: str) -> None:
    until("both centres to be ready", lambda: len(ready(cluster)) == 2)
    old = until("a leader", cluster.leader)
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait=false")
    # A lease that has to run out takes 15 s.
    until("a successor", lambda: cluster.leader() != old, 14)
    cluster.apply(namespace, pod("p", 1))
    cluster.running(namespace, 1)
