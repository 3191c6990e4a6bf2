"""Taken off the cluster as docs/how-to/uninstall.md says, and put on again: what runs goes on running, with its GPUs,
and nobody else gets them."""

import pytest

from tests.e2e.cluster.settings import ROOT
from tests.e2e.world import NAMESPACE, World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
REST = (
    *(("clusterrole", f"lockstep-{name}") for name in ("central", "jobs", "view", "edit", "admin")),
    *(("clusterrolebinding", f"lockstep-{name}") for name in ("central", "jobs")),
    ("priorityclass", "lockstep-critical"),
)


def test_taken_off_and_put_on_again(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, podgroup("g", 2), *(pod(f"g-{i}", 6, gang="g") for i in range(2)))
    before = {p["metadata"]["uid"] for p in cluster.running(namespace, 2)}
    held = cluster.agreed()
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s")
    for kind, name in REST:
        cluster.kubectl("delete", kind, name)
    until("no GPUs to give", lambda: set(cluster.allocatable().values()) == {0}, 60)
    assert {p["metadata"]["uid"] for p in cluster.running(namespace, 2)} == before
    assert cluster.podgroup(namespace, "g")["spec"]["minMember"] == 2, "definitions are left"

    late = pod("late", 2)
    cluster.apply(namespace, late)
    cluster.kubectl("apply", "-k", str(ROOT / "daemonset"))
    cluster.forget_centre()
    until("GPUs on every node", lambda: set(cluster.allocatable().values()) == {8}, 120)
    pods = cluster.running(namespace, 3, 90)
    assert before < {p["metadata"]["uid"] for p in pods}
    now = until("books and kubelets to agree", cluster.agreed, 60)
    assert held.items() <= now.items()
    assert disjoint(now.values())
