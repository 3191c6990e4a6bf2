"""Many pods at once, and pods of the default scheduler among ours: nobody gets another's GPUs."""

import re

import pytest

from tests.e2e.world import NAMESPACE, Held, Pod, World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
CROWD = 50


def test_fifty_identical_pods_never_get_anothers_gpus(cluster: World, namespace: str) -> None:
    """50 pods of one GPU on 16 GPUs: each holds, from its first moment, the GPU that the centre
    wrote down for it, and no GPU is held by two."""
    script = "env | grep -E '^(LOCKSTEP|NVIDIA)_'; sleep 2"
    cluster.apply(namespace, *(pod(f"one-{n}", 1, script=script) for n in range(CROWD)))

    given: dict[Pod, Held] = {}
    planned: dict[Pod, Held] = {}

    def watched() -> bool:
        books = cluster.books()
        assert disjoint(books.values()), f"the books give a GPU twice: {books}"
        for who, held in books.items():
            assert planned.setdefault(who, held) == held, f"{who} was planned elsewhere"
        truth = cluster.truth()
        live = {p["metadata"]["name"] for p in cluster.pods(namespace) if not ended(p)}
        assert disjoint(held for (_, name), held in truth.items() if name in live)
        for who, held in truth.items():
            assert given.setdefault(who, held) == held, f"{who} changed its GPUs"
        return all(p["status"]["phase"] == "Succeeded" for p in cluster.pods(namespace))

    until("all to have run", watched, 240)
    assert len(given) >= 16, "most pods were seen while they ran"
    known = planned.keys() & given.keys()
    assert {who: planned[who] for who in known} == {who: given[who] for who in known}

    carried_out = as_planned(cluster, namespace)
    assert sorted(carried_out) == sorted(f"one-{n}" for n in range(CROWD))
    for name, gpus in carried_out.items():
        env = cluster.environment(namespace, name)
        assert env["LOCKSTEP_GPUS"] == gpus
        if seen := given.get((namespace, name)):
            assert env["NVIDIA_VISIBLE_DEVICES"] == seen.gpus[0]


def as_planned(cluster: World, namespace: str) -> dict[str, str]:
    """Pod to GPUs, where an agent says that it could give just what the centre had planned."""
    told = cluster.kubectl(
        *("-n", NAMESPACE, "logs", "-lapp.kubernetes.io/name=lockstep-agent", "--tail=-1")
    )
    pattern = rf": GPUs (\S+) \({namespace}/(\S+), container main: as planned\)"
    return {found[2]: found[1] for found in re.finditer(pattern, told)}


def ended(found: dict[str, dict[str, str]]) -> bool:
    return found["status"]["phase"] in {"Succeeded", "Failed"}


def test_pods_of_the_default_scheduler_are_respected(cluster: World, namespace: str) -> None:
    """Six of node-1's GPUs go to pods that we did not place: a gang that needs eight goes elsewhere
    as a whole, and a pod of two gets just what is left."""
    others = [pod(f"other-{n}", 3, scheduler="default-scheduler", node="node-1") for n in range(2)]
    cluster.apply(namespace, *others)
    cluster.running(namespace, 2)
    cluster.agreed()

    wish = {"lockstep.dev/topology-required": "island"}
    gang = [pod(f"a-{n}", 4, gang="a") for n in range(2)]
    cluster.apply(namespace, podgroup("a", 2, **wish), *gang)
    cluster.running(namespace, 4)
    held = cluster.agreed()
    assert {held[namespace, f"a-{n}"].node for n in range(2)} == {"node-2"}

    cluster.apply(namespace, pod("left", 2))
    cluster.running(namespace, 5)
    held = cluster.agreed()
    assert held[namespace, "left"].node == "node-1"
    assert disjoint(held.values())


def test_both_schedulers_at_once(cluster: World, namespace: str) -> None:
    """Sixteen pods, every other one the default scheduler's, created together."""
    schedulers = ("lockstep", "default-scheduler")
    pods = [pod(f"p-{n}", 1, scheduler=schedulers[n % 2]) for n in range(16)]
    cluster.apply(namespace, *pods)

    def settled() -> bool:
        return all(p["status"]["phase"] in {"Running", "Failed"} for p in cluster.pods(namespace))

    until("all to be decided", settled, 120)
    held = cluster.agreed()
    assert disjoint(held.values())
    running = [p for p in cluster.pods(namespace) if p["status"]["phase"] == "Running"]
    assert len(held) == len(running)
