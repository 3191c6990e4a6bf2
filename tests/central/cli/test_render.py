"""Answers as tables and as JSON."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.cli import render
from central.server import argtypes
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import RdmaLimit, RdmaUse
from tests.central import factories


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def topology(*names: str) -> pb.TopologyReply:
    nodes = [
        pb.NodeView(
            name=name,
            domains=["", "r1"],
            topology=wire.to_topology(factories.topology(2)),
            holders=[pb.Holder(namespace="ns", pod="one", gpus=[0], confirmed=True)],
            gpus_allocatable=2,
            count=pb.GpuCount(gpus=2, used=1, free=1),
        )
        for name in names
    ]
    return pb.TopologyReply(nodes=nodes, levels=["lockstep.dev/block", "lockstep.dev/rack"])


def test_a_line_per_node_without_the_levels_that_no_node_has() -> None:
    lines = render.topology_table(topology("a", "b")).splitlines()
    assert lines[0].split() == [
        "NODE",
        "RACK",
        "GPUS",
        "USED",
        "FREE",
        "MODEL",
        "HOLDERS",
        "TROUBLE",
    ]
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["a", "r1", "2", "1"],
        ["b", "r1", "2", "1"],
    ]


def test_one_node_has_its_matrix() -> None:
    assert "GPU1" in render.topology_table(topology("a"))


def test_json_is_an_object_for_one_node_and_a_list_for_all() -> None:
    one = render.topology_json(topology("a"), one=True)
    assert {"node", "gpus", "hcas", "links", "islands", "rdma_cgroup"} <= set(one)
    assert one["domains"] == {"lockstep.dev/block": "", "lockstep.dev/rack": "r1"}
    assert one["links"] == [["X", "NV12"], ["NV12", "X"]]
    assert one["holders"] == [
        {"namespace": "ns", "pod": "one", "gpus": [0], "confirmed": True, "enforcement": "whole"}
    ]
    both = render.topology_json(topology("a", "b"), one=False)
    assert [node["node"] for node in json.loads(json.dumps(both))] == ["a", "b"]


def test_rdma_usage_by_pod_and_nic() -> None:
    reply = topology("a")
    known = RdmaUse("ns", "one", "mlx5_0", RdmaLimit(3, 40), RdmaLimit(64, -1), 2)
    unknown = RdmaUse("ns", "two", "mlx5_1", RdmaLimit(), RdmaLimit())
    reply.nodes[0].cards.extend(wire.messages(pb.RdmaUse, [known, unknown]))
    lines = render.topology_table(reply).splitlines()
    assert [line.split() for line in lines[3:6]] == [
        ["POD", "NIC", "HANDLES", "OBJECTS", "REFUSED"],
        ["ns/one", "mlx5_0", "3", "of", "64", "40", "2"],
        ["ns/two", "mlx5_1", "-", "-", "-"],
    ]
    shown = render.topology_json(reply, one=True)["cards"]
    assert shown[0]["current"] == {"hca_handle": 3, "hca_object": 40}
    assert shown[0]["limit"] == {"hca_handle": 64, "hca_object": "max"}
    assert (shown[0]["failures"], shown[1]["failures"]) == (2, None)
    assert shown[1]["current"] == shown[1]["limit"] == {"hca_handle": None, "hca_object": None}


def test_differing_versions_are_shown() -> None:
    reply = topology("a", "b", "c")
    reply.version = "0.2.0"
    for node, version in zip(reply.nodes, ("0.2.0", "0.1.0", "0.1.0"), strict=True):
        node.agent_version = version
    skew = "scheduler 0.2.0, agents 0.1.0 on b and 1 more"
    assert skew in render.topology_table(reply)
    assert render.topology_json(reply, one=False)[1]["agent_version"] == "0.1.0"
    for node in reply.nodes:
        node.agent_version = "0.2.0"
    assert "version" not in render.topology_table(reply)


def test_a_node_without_an_agent_has_no_hardware() -> None:
    reply = pb.TopologyReply(nodes=[pb.NodeView(name="a", trouble="no agent has reported")])
    assert "no agent has reported" in render.topology_table(reply)
    assert render.topology_json(reply, one=True)["node"] == "a"


def test_an_explanation() -> None:
    reply = pb.ExplainReply(
        found=True,
        namespace="ns",
        name="job",
        phase="Pending",
        reason="needs 2 pods",
        pods=[
            pb.PodView(name="job-0", phase="Running", node="a", gpus=[0, 1], confirmed=True),
            pb.PodView(name="job-1", phase="Pending", node="a", gpus=[2, 3]),
        ],
    )
    lines = render.explanation_table(reply).splitlines()
    assert lines[:2] == ["ns/job: Pending", "needs 2 pods"]
    assert lines[4].split() == ["job-0", "Running", "a", "0,1"]
    assert lines[5].split() == ["job-1", "Pending", "a", "2,3", "(planned)"]
    assert render.explanation_json(reply)["pods"][1] == {
        "name": "job-1",
        "phase": "Pending",
        "node": "a",
        "gpus": [2, 3],
        "confirmed": False,
    }


def test_mig_slices_and_their_holders() -> None:
    held = pb.HeldSlice(uuid="MIG-1", profile="1g.5gb", gpu=2)
    node = pb.NodeView(
        name="a",
        topology=wire.to_topology(factories.sliced(factories.topology(2), 2)),
        holders=[pb.Holder(namespace="ns", pod="one", slices=[held], confirmed=True)],
        gpus_allocatable=2,
        slices_used=1,
    )
    reply = pb.TopologyReply(nodes=[node, pb.NodeView(name="b")])
    lines = render.topology_table(reply).splitlines()
    assert lines[0].split() == [
        "NODE",
        "GPUS",
        "USED",
        "FREE",
        "SLICES",
        "MODEL",
        "HOLDERS",
        "TROUBLE",
    ]
    assert [line.split()[4] for line in lines[1:3]] == ["1/2", "-"]
    one = render.topology_table(pb.TopologyReply(nodes=[node]))
    assert "  GPU2  1g.5gb  gi 0  ci 0  MIG-0  -\n" in one
    assert "  GPU2  1g.5gb  gi 1  ci 0  MIG-1  ns/one\n" in one
    shown = render.topology_json(pb.TopologyReply(nodes=[node]), one=True)
    assert shown["slices_used"] == 1
    assert shown["holders"][0]["slices"] == [
        {"uuid": "MIG-1", "profile": "1g.5gb", "gpu": 2, "enforcement": "mig"}
    ]
    assert [part["uuid"] for part in shown["gpus"][2]["slices"]] == ["MIG-0", "MIG-1"]
    pods = [
        pb.PodView(name="p", phase="Running", node="a", slices=[held], confirmed=True),
        pb.PodView(name="q", phase="Running", node="a", slices=[pb.HeldSlice(uuid="MIG-9")]),
    ]
    lines = render.explanation_table(pb.ExplainReply(found=True, pods=pods)).splitlines()
    assert lines[-2].split() == ["p", "Running", "a", "2", "(1g.5gb)"]
    assert lines[-1].split() == ["q", "Running", "a", "(gone)"]


def test_the_holders_of_each_node_and_the_totals() -> None:
    reply = topology("a", "b")
    holders = [
        pb.Holder(namespace="ns", pod="t-0", job="job/t", gpus=[0, 1, 2, 5], confirmed=True),
        pb.Holder(namespace="ns", pod="one", gpus=[7], confirmed=True),
    ]
    del reply.nodes[0].holders[:]
    reply.nodes[0].holders.extend(holders)
    text = render.topology_table(reply)
    assert "ns/job/t 0-2,5, ns/one 7" in text
    assert text.endswith("\n2 nodes, 4 GPUs, 2 used, 2 free\n")


def test_a_narrow_terminal_gets_the_first_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reply = topology(*(f"node-with-a-long-name-{at}" for at in range(3)))
    for node in reply.nodes:
        node.holders.append(
            pb.Holder(namespace="team", pod="p", job="job/another-long-name", gpus=[1])
        )
    lines = render.topology_table(reply).splitlines()
    assert max(map(len, lines)) <= 80
    assert "ns/one +1" in lines[1]


def test_only_the_nodes_of_a_rack() -> None:
    reply = topology("a", "b")
    reply.nodes[1].domains[1] = "r2"
    for selector in ("rack=r2", "lockstep.dev/rack=r2", "rack=r2,block="):
        found = render.selected(reply, argtypes.domains(selector))
        assert [node.name for node in found.nodes] == ["b"]
    with pytest.raises(ValueError, match='"zone" is not a level of the topology: block, rack'):
        render.selected(reply, {"zone": "z"})


def test_gpus_by_level_and_model() -> None:
    reply = topology("a", "b", "c")
    reply.nodes[1].domains[1], reply.nodes[1].trouble = "r2", "GPU 0: xid 79"
    reply.nodes[2].count.CopyFrom(pb.GpuCount(gpus=2, used=0, free=2))
    by_rack = {"gpus": 4, "used": 1.0, "free": 3.0, "free_nodes": 1, "troubled_nodes": 0}
    other = {"gpus": 2, "used": 1.0, "free": 1.0, "free_nodes": 0, "troubled_nodes": 1}
    rows = render.sums(reply, ("lockstep.dev/rack",))
    assert rows == [{"rack": "r1", "nodes": 2, **by_rack}, {"rack": "r2", "nodes": 1, **other}]
    (model,) = {gpu.model for gpu in reply.nodes[0].topology.gpus}
    (row,) = render.sums(reply, ("model", "block"))
    assert (row["model"], row["block"], row["gpus"]) == (model, "-", 6)
    lines = render.sums_table(rows).splitlines()
    assert lines[0].split()[:5] == ["RACK", "NODES", "GPUS", "USED", "FREE"]
    assert lines[2].split() == ["r2", "1", "2", "1", "1", "0", "1"]
    with pytest.raises(ValueError, match='--by: "zone" is no key: block, rack, model'):
        render.sums(reply, ("zone",))


def test_a_picture_by_rack() -> None:
    reply = topology("a", "b")
    reply.nodes[1].domains[1] = "r2"
    text = render.topology_picture(reply)
    assert "┌ rack r1 " in text
    assert "┌ rack r2 " in text
    assert "A ns/one   · free" in text
    assert "\x1b" not in text


def test_the_place_in_the_queue_and_the_expected_start() -> None:
    reply = pb.ExplainReply(
        namespace="ns", name="j", phase="Pending", reason="why", queue="q", place=3, pending=12,
        start=1793491200.0, priority=5,
    )  # fmt: skip
    text = render.explanation_table(reply)
    assert "queue q; place 3 of 12; priority 5; expected to start 2026-1" in text
    assert render.explanation_json(reply)["place"] == 3


def test_every_field_of_an_explanation() -> None:
    card = RdmaUse("ns", "j-0", "mlx5_0", RdmaLimit(3, -1), RdmaLimit(-1, 40), -1)
    pods = [
        pb.PodView(name="j-0", phase="Running", node="a", gpus=[1, 3], share=25, confirmed=True),
        pb.PodView(name="j-1", phase="Pending"),
    ]
    reply = pb.ExplainReply(
        found=True, namespace="ns", name="j", phase="Pending", reason="why", min_member=2,
        queue="q (uses 0 of 7 GPUs (GPU units) of its fair share)",
        closest="rack r1", owner="job/j", pending=4, start=1793491200.0, pods=pods,
        cause="capacity", wanted_nodes=[pb.WantedNodes(nodes=2, each={"cpu": 0.5})],
        cards=wire.messages(pb.RdmaUse, [card]),
    )  # fmt: skip
    assert render.explanation_json(reply) == {
        "namespace": "ns",
        "name": "j",
        "phase": "Pending",
        "reason": "why",
        "cause": "capacity",
        "wanted_nodes": [{"nodes": 2, "each": {"cpu": 0.5}}],
        "min_member": 2,
        "queue": "q",
        "queue_standing": "uses 0 of 7 GPUs (GPU units) of its fair share",
        "closest": "rack r1",
        "owner": "job/j",
        "place": None,
        "pending": 4,
        "start": 1793491200.0,
        "priority": 0,
        "cards": [
            {
                "namespace": "ns",
                "pod": "j-0",
                "card": "mlx5_0",
                "current": {"hca_handle": 3, "hca_object": None},
                "limit": {"hca_handle": "max", "hca_object": 40},
                "failures": None,
            }
        ],
        "pods": [
            {
                "name": "j-0",
                "phase": "Running",
                "node": "a",
                "gpus": [1, 3],
                "confirmed": True,
                "share": 25,
            },
            {"name": "j-1", "phase": "Pending", "node": "", "gpus": [], "confirmed": False},
        ],
    }
    lines = render.explanation_table(reply).splitlines()
    assert lines[2].startswith("queue q (uses 0 of 7 GPUs (GPU units) of its fair share); expected")
    rows = [line.split() for line in lines[4:]]
    assert rows == [
        ["POD", "PHASE", "NODE", "GPUS"],
        ["j-0", "Running", "a", "1,3", "(25/100)"],
        ["j-1", "Pending", "-", "-"],
        [],
        ["POD", "NIC", "HANDLES", "OBJECTS", "REFUSED"],
        ["ns/j-0", "mlx5_0", "3", "-", "-"],
    ]


def test_what_is_not_known_is_not_said() -> None:
    reply = pb.ExplainReply(found=True, namespace="ns", name="j", phase="Running", reason="why")
    assert render.explanation_table(reply) == "ns/j: Running\nwhy\n"
    shown = render.explanation_json(reply)
    assert (shown["place"], shown["start"], shown["cards"], shown["pods"]) == (None, None, [], [])


def test_shares_of_gpus_and_hidden_pods() -> None:
    reply = topology("a", "b")
    shared = reply.nodes[0]
    shared.gpus_shared, shared.shares_used, shared.hidden_holders = 2, 75, 1
    shared.topology.gpus[1].enforcement = "mps"
    shared.holders.append(pb.Holder(namespace="ns", pod="part", gpus=[1], share=75))
    shared.holders.append(pb.Holder(namespace="ns", pod="other", gpus=[0], share=5))
    shared.holders.append(pb.Holder(namespace="ns", pod="no GPU"))
    text = render.topology_table(reply)
    rows = [line.split("  ") for line in text.splitlines()]
    assert "2 (75/200)" in [each.strip() for each in rows[1]]
    assert "-" in [each.strip() for each in rows[2]]
    assert "ns/one 0, ns/part 1, ns/other 0, ns/no GPU, 1 hidden" in text
    assert "\n1 pod of other namespaces not shown\n" in text
    reply.nodes[1].hidden_holders = 2
    assert "\n3 pods of other namespaces not shown\n" in render.topology_table(reply)
    holders = render.topology_json(reply, one=False)[0]["holders"]
    assert [each.get("enforcement") for each in holders] == ["whole", "mps", "none", None]
    assert [each.get("share") for each in holders] == [None, 75, 5, None]


@given(gpus=st.sets(st.integers(0, 15), min_size=1))
def test_gpus_of_a_holder_are_ranges(gpus: set[int]) -> None:
    reply = topology("a")
    reply.nodes[0].holders[0].gpus[:] = gpus
    (cell,) = re.findall(r"ns/one (\S+)", render.topology_table(reply).splitlines()[1])
    ranges = [tuple(map(int, each.split("-"))) for each in cell.split(",")]
    assert [gpu for each in ranges for gpu in range(each[0], each[-1] + 1)] == sorted(gpus)
    assert all(one[-1] + 1 < following[0] for one, following in pairwise(ranges))


def test_models_and_nodes_without_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = topology("a", "b")
    models = "NVIDIA H100-SXM", "NVIDIA A100-40GB"
    for gpu, model in zip(reply.nodes[0].topology.gpus, models, strict=True):
        gpu.model = model
    del reply.nodes[0].holders[:]
    reply.nodes[1].ClearField("topology")
    reply.nodes[1].slices_used = 1
    lines = render.topology_table(reply).splitlines()
    cells = [re.split(r"  +", line) for line in lines[:3]]
    assert cells[1] == ["a", "r1", "2", "1", "1", "NVIDIA A100-40GB, NVIDIA H100-SXM", "-", "-"]
    assert cells[2][-3:] == ["-", "ns/one 0", "-"]
    monkeypatch.setenv("COLUMNS", "56")
    assert "A100, H100" in render.topology_table(reply).splitlines()[1]


def test_problems_of_the_network_are_said_and_no_terminal_obeys_them() -> None:
    reply = topology("a", "b")
    reply.troubles.append("HyperNode h: a\x1b[2Jb")
    assert "\nHyperNode h: a?[2Jb\n" in render.topology_table(reply)


def test_an_elastic_job_shows_its_size() -> None:
    size = "8 of 2 to 12 members; this is the most that it can use"
    reply = pb.ExplainReply(found=True, namespace="ns", name="j", phase="Running", size=size)
    assert size in render.explanation_table(reply).splitlines()
    assert render.explanation_json(reply)["size"] == size
    assert "size" not in render.explanation_json(pb.ExplainReply(found=True))


@pytest.mark.parametrize("columns", [40, 80])
def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    reply = topology(*(f"node-with-a-long-name-{at}" for at in range(3)))
    reply.nodes[0].trouble = "GPU 3: a double-bit error, of which the driver says nothing more"
    reason = (
        "needs 16 pods x 8 GPUs in one rack; the best, rack r17, fits 3 of 16 (24 of 128 GPUs free)"
    )
    pods = [
        pb.PodView(name=f"training-of-a-large-model-{at}", phase="Running", node="node-1", gpus=[0])
        for at in range(3)
    ]
    explained = pb.ExplainReply(
        found=True, namespace="team", name="train", phase="Pending", reason=reason, pods=pods,
        queue="research", place=3, pending=7, priority=1000, start=1.8e9,
    )  # fmt: skip
    for text in (render.topology_table(reply), render.explanation_table(explained)):
        longest = max(text.splitlines(), key=len)
        assert len(longest) <= columns, longest


def test_a_domain_without_a_node() -> None:
    with pytest.raises(ValueError, match="no node is in rack=zz"):
        render.selected(topology("a", "b"), {"rack": "zz"})
    for selector, wrong in (("rack", "rack"), ("rack=r1,", "")):
        with pytest.raises(ValueError, match=f'"{wrong}" is not LEVEL=NAME'):
            argtypes.domains(selector)
