"""What comes of manifests, through the command itself."""

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from central.cli.main import main
from central.simulator import machines
from protos.common import own_program
from tests.central.simulator import manifests
from tests.central.simulator.manifests import Simulate, gang, group, node, pod, when, where

CAPTURES = Path(__file__).parents[2] / "captures"


def test_a_gang_goes_whole_and_the_next_one_follows_when_it_ends(simulate: Simulate) -> None:
    found = simulate(node("a"), *gang("one", 2, 4, runs="1h"), *gang("two", 2, 4, runs="30m"))
    assert when(found) == {"one-0": 0, "one-1": 0, "two-0": 3600, "two-1": 3600}
    assert {(e["name"], e["at_s"], e["phase"]) for e in found["ended"]} == {
        ("one-0", 3600, "Succeeded"),
        ("one-1", 3600, "Succeeded"),
        ("one", 3600, "Completed"),
        ("two-0", 5400, "Succeeded"),
        ("two-1", 5400, "Succeeded"),
        ("two", 5400, "Completed"),
    }
    assert found["waiting"] == []
    metrics = found["metrics"]
    assert metrics["makespan_s"] == 5400
    assert metrics["gpu_utilization"] == 1.0
    assert metrics["turns"] > 0
    assert 0 <= metrics["turn_ms_p50"] <= metrics["turn_ms_p99"]
    assert metrics["decide_s_total"] > 0


def test_what_does_not_fit_waits_with_its_sentence(simulate: Simulate) -> None:
    found = simulate(node("a"), *gang("big", 3, 4))
    assert found["placements"] == []
    [waits] = found["waiting"]
    assert (waits["namespace"], waits["name"]) == ("default", "big")
    assert waits["reason"].startswith("needs 3 pods x 4 GPUs")


def test_arrivals_and_ends_are_where_the_annotations_say(simulate: Simulate) -> None:
    found = simulate(node("a"), pod("p", 1, at="1h30m", runs="500ms"))
    assert when(found) == {"p": 5400}
    [ended] = found["ended"]
    assert (ended["name"], ended["at_s"]) == ("p", 5400.5)


def test_a_group_tells_its_pods_times(simulate: Simulate) -> None:
    times = {"arrives_at": "10s", "runs_for": "20s"}
    found = simulate(
        node("a"), group("g", 2, **times), pod("g-0", 1, gang="g"), pod("g-1", gang="g")
    )
    assert when(found) == {"g-0": 10, "g-1": 10}
    assert found["metrics"]["makespan_s"] == 30


def test_the_order_in_the_file_is_the_order_of_creation(simulate: Simulate) -> None:
    names = ["z", "a", "m"]
    found = simulate(node("n", 1), *(pod(name, 1, runs="1s") for name in names))
    assert [placed["pod"] for placed in found["placements"]] == names
    assert list(when(found).values()) == [0, 1, 2]


def test_pods_that_run_already_hold_their_place(simulate: Simulate) -> None:
    found = simulate(
        pod("old", 6, on="a", runs="10s"),
        pod("theirs", 1, on="a", scheduler="default-scheduler"),
        node("a"),
        pod("new", 1),
        pod("big", 4),
    )
    assert when(found) == {"new": 0, "big": 10}
    assert where(found) == {"new": "a", "big": "a"}
    taken = Counter(gpu for placed in found["placements"] for gpu in placed["gpus"])
    assert max(taken.values()) == 1
    assert found["ended"][0]["name"] == "old"


def test_gpus_are_given_one_by_one_on_nodes_of_plain_numbers(simulate: Simulate) -> None:
    found = simulate(node("a"), *(pod(f"p{i}", 1 + i) for i in range(3)))
    held = [gpu for placed in found["placements"] for gpu in placed["gpus"]]
    assert len(held) == len(set(held)) == 6
    assert set(held) <= set(range(8))


def test_more_gpus_than_any_machine_has_are_counted_all_the_same(simulate: Simulate) -> None:
    found = simulate(node("a", 1000), pod("p", 400), pod("q", 600))
    held = [gpu for placed in found["placements"] for gpu in placed["gpus"]]
    assert sorted(held) == list(range(1000))


def test_a_capture_brings_the_machine(simulate: Simulate) -> None:
    """DGX-1: the mesh is two squares of four; an island of eight there is none."""
    machine = node("a", capture="dgx1-v100-8")
    found = simulate(machine, *gang("g", 2, 2, required="island"), pod("w", 4))
    by_pod = {placed["pod"]: set(placed["gpus"]) for placed in found["placements"]}
    assert len(by_pod["g-0"] | by_pod["g-1"] | by_pod["w"]) == 8


def test_a_capture_may_be_a_file_beside_the_manifest(simulate: Simulate) -> None:
    """As the agent prints it with `capture`, or with `topology -o json`: the named machine."""
    (simulate.folder / "racks").mkdir()
    shutil.copy(CAPTURES / "dgx1-v100-8.json", simulate.folder / "racks" / "mine.json")
    shutil.copy(machines.FOLDER / "dgx1-v100-8.json", simulate.folder / "printed.json")
    objects = [*gang("g", 2, 2, required="island"), pod("w", 4)]
    named, raw, printed = (
        simulate(node("a", capture=capture), *objects)["placements"]
        for capture in ("dgx1-v100-8", "racks/mine.json", "./printed.json")
    )
    assert len(named) == 3
    assert raw == named == printed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("[1]", "not what `lockstep-agent capture` or"),
        ('{"gpus": [{}]}', "not what `lockstep-agent capture` or"),
        ("GPU0 GPU1", "not what `lockstep-agent capture` or"),
        ('{"schema": "lockstep.dev/capture/v1"}', "mine.json: "),
        (" " * ((16 << 20) + 1), "mine.json: larger than 16 MiB"),
    ],
)
def test_a_file_that_is_no_capture(simulate: Simulate, text: str | None, why: str) -> None:
    if text is not None:
        (simulate.folder / "mine.json").write_text(text)
    simulate.text(json.dumps(node("a", capture="./mine.json")), code=2)
    assert "scenario.yaml: document 1: Node a: metadata.annotations.lockstep.dev/capture: " in (
        simulate.errors
    )
    assert why in simulate.errors
    assert simulate.errors.count("\n") == 1


def test_equal_nodes_are_counted(simulate: Simulate) -> None:
    found = simulate(
        node("n", rack="r1", count="3"), *gang("g", 3, 8, required="lockstep.dev/rack")
    )
    assert sorted(where(found).values()) == ["n-0", "n-1", "n-2"]


@pytest.mark.parametrize("count", ["0", "three", "-1", "100001"])
def test_a_count_that_is_none(simulate: Simulate, count: str) -> None:
    simulate.text(json.dumps(node("n", count=count)), code=2)
    assert f'lockstep.dev/count: "{count}" is not a whole number from 1 to' in simulate.errors


def test_a_node_of_plain_numbers_is_one_island(simulate: Simulate) -> None:
    found = simulate(node("a"), *gang("g", 2, 4, required="island"))
    assert len(found["placements"]) == 2


def test_levels_are_flags_as_for_the_centre(simulate: Simulate) -> None:
    racks = [node(f"n{i}", rack=f"r{i // 2}") for i in range(4)]
    objects = [*racks, *gang("g", 2, 8, required="example.com/row")]
    waits = simulate(*objects)["waiting"]
    assert "example.com/row" in waits[0]["reason"]
    for each in racks:
        each["metadata"]["labels"]["example.com/row"] = "one"
    found = simulate(*objects, flags=("--topology-levels", "example.com/row"))
    assert len(found["placements"]) == 2


def test_other_schedulers_pods_are_left_to_them(simulate: Simulate) -> None:
    found = simulate(node("a"), pod("p", 1, scheduler="default-scheduler"))
    assert found["placements"] == []
    assert "another scheduler" in found["waiting"][0]["reason"]
    assert "warning: 1 pods" in simulate.errors
    found = simulate(
        node("a"),
        pod("p", 1, scheduler="default-scheduler"),
        flags=("--scheduler-names", "default-scheduler"),
    )
    assert where(found) == {"p": "a"}


def test_priority_classes_become_numbers(simulate: Simulate) -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
        "preemptionPolicy": "Never",
    }
    found = simulate(
        node("a", 1),
        pod("first", 1, on="a", runs="5s"),
        pod("later", 1, runs="1s"),
        pod("sooner", 1, runs="1s", priority_class="urgent"),
        urgent,
    )
    assert [placed["pod"] for placed in found["placements"]] == ["sooner", "later"]


def test_a_node_that_leaves_takes_its_pods_along(simulate: Simulate) -> None:
    """Whoever has a controller comes again; a bare pod is gone."""
    found = simulate(
        node("a", 2, leaves_at="10s"),
        node("b", 2, arrives_at="20s"),
        pod("owned", 1, runs="1m", recreate="true"),
        pod("bare", 1, runs="1m"),
    )
    assert [(p["pod"], p["node"], p["at_s"]) for p in found["placements"]] == [
        ("owned", "a", 0),
        ("bare", "a", 0),
        ("owned", "b", 20),
    ]
    assert {(e["pod"], e["at_s"], e["reason"]) for e in found["evictions"]} == {
        ("owned", 10, "node a is gone"),
        ("bare", 10, "node a is gone"),
    }
    assert found["metrics"]["makespan_s"] == 80
    assert found["metrics"]["gpu_hours_lost"] == pytest.approx(20 / 3600, abs=1e-6)


URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
KEEP_WEB = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "keep"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
}


def test_nobody_is_evicted_for_a_claim_that_a_budget_would_stop(simulate: Simulate) -> None:
    """Two nodes of two pods each; a gang that needs both nodes, and a budget on one of the pods."""
    web = pod("web", 4, runs="2h", labels={"app": "web"})
    rest = [pod(f"low-{i}", 4, recreate="true") for i in range(3)]
    big = [
        pod(f"big-{i}", 6, gang="big", at="1m", runs="10m", priority_class="urgent")
        for i in range(2)
    ]
    objects = (node("a"), node("b"), URGENT, KEEP_WEB, web, *rest, group("big", 2), *big)
    found = simulate(*objects, flags=("--until", "3h"))
    assert [evicted["at_s"] for evicted in found["evictions"]] == [7200] * 3, "when it has ended"
    assert {name: at for name, at in when(found).items() if "big" in name} == {
        "big-0": 7200,
        "big-1": 7200,
    }


def test_an_eviction_that_a_budget_forbids_is_hoped_for_no_longer_than_it_makes_sense(
    simulate: Simulate,
) -> None:
    web = pod("web", 8, labels={"app": "web"})
    late = pod("late", 8, at="1m", priority_class="urgent")
    found = simulate(node("a"), URGENT, KEEP_WEB, web, late)
    assert where(found) == {"web": "a"}
    assert found["evictions"] == []
    assert [waits["name"] for waits in found["waiting"]] == ["late"]
    assert found["metrics"]["end_s"] == 60
    assert found["metrics"]["gpu_utilization"] == 1.0


def test_somebody_is_moved_so_that_a_gang_fits(simulate: Simulate) -> None:
    halves = [pod(f"half-{i}", 4, recreate="true", movable="true") for i in range(4)]
    for index, half in enumerate(halves):
        half["spec"]["nodeName"] = f"n{index}"
    nodes = [node(f"n{i}") for i in range(4)]
    big = [pod(f"big-{i}", 8, gang="big", at="10m") for i in range(2)]
    found = simulate(*nodes, *halves, group("big", 2), *big)
    assert found["waiting"] == []
    assert len(found["evictions"]) == 2
    assert {evicted["reason"] for evicted in found["evictions"]} == {
        "rescheduled to make room for default/big; it fits on other nodes"
    }
    assert when(found)["big-0"] == when(found)["big-1"] == 600
    assert len(found["placements"]) == 4, "both who were moved have a place again"


def test_problems_of_the_network_tree_are_warnings(simulate: Simulate) -> None:
    tree = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "s1"},
        "spec": {
            "tier": 2,
            "members": [{"type": "HyperNode", "selector": {"exactMatch": {"name": "s0"}}}],
        },
    }
    simulate(node("a"), tree, pod("p", 1))
    assert "warning: HyperNode s1: member s0 does not exist" in simulate.errors


def test_until_ends_it(simulate: Simulate) -> None:
    found = simulate(node("a", 1), pod("p", 1, runs="1h"), pod("q", 1), flags=("--until", "90"))
    assert where(found) == {"p": "a"}
    assert found["ended"] == []
    assert found["waiting"][0]["name"] == "q"
    assert found["metrics"]["end_s"] == 90
    assert found["metrics"]["gpu_utilization"] == 1.0


def test_a_gang_by_label_needs_no_object(simulate: Simulate) -> None:
    members = [
        pod(f"g-{i}", 4, labels={"lockstep.dev/gang": "g"}, gang_min="3", runs="1s")
        for i in range(3)
    ]
    assert simulate(node("a"), *members)["placements"] == []
    assert len(simulate(node("a"), node("b"), *members)["placements"]) == 3


def test_kinds_that_are_not_used_are_noted(simulate: Simulate) -> None:
    every = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}}
    assert simulate(node("a"), every)["placements"] == []
    assert "1 DaemonSet object" in simulate.errors


def test_lists_folders_and_more_than_one_json_document(simulate: Simulate) -> None:
    folder = simulate.folder / "in"
    folder.mkdir()
    (folder / "1.yaml").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("a")]})
    )
    (folder / "2.json").write_text("\n".join(json.dumps(pod(f"p{i}", 1)) for i in range(3)))
    (folder / "notes.txt").write_text("not for us")
    assert len(simulate.paths(str(folder))["placements"]) == 3
    nodes = {"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}
    assert simulate(nodes)["placements"] == []


def _timeless(result: manifests.Json) -> manifests.Json:
    metrics = result["metrics"]
    for name in ("turn_ms_p50", "turn_ms_p99", "decide_s_total"):
        metrics.pop(name)
    return result


def _busy() -> list[manifests.Json]:
    objects = [node(f"n{i}", rack=f"r{i // 3}") for i in range(9)]
    for i in range(20):
        runs = f"{1 + i * 7 % 13}m"
        objects += gang(f"g{i}", 1 + i * 5 % 9, (1, 2, 4, 8)[i % 4], runs=runs)
        objects.append(pod(f"p{i}", 1 + i % 3, runs=runs, at=f"{i * 11 % 40}s"))
    return objects


def test_the_same_seed_tells_the_same_story(simulate: Simulate) -> None:
    one = _timeless(simulate(*_busy(), flags=("--seed", "7")))
    two = _timeless(simulate(*_busy(), flags=("--seed", "7")))
    assert one == two
    assert len(one["ended"]) >= 20
    assert one["waiting"] == []


def test_the_order_of_the_hash_tables_does_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "busy.json"
    file.write_text("\n".join(json.dumps(each) for each in _busy()))
    told = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [*own_program.command("central"), "simulate", str(file), "-o", "json"],
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        told.append(_timeless(json.loads(done.stdout)))
    assert told[0] == told[1]


def test_the_table_is_for_people(simulate: Simulate, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(node("a"), *gang("train", 2, 4, runs="1h"), *gang("big", 3, 8))
    assert main(["simulate", str(simulate.folder / "scenario.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "default/train" in shown
    assert "default/big is pending: needs 3 pods x 8 GPUs" in shown
    assert "2 pods placed, 2 ended, 0 evicted, 3 pending" in shown
