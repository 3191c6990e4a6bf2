"""Shared GPUs in the metrics and in the topology table."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from agent.machine.survey import survey
from agent.metrics import families, share_families
from agent.node_state import NodeState
from agent.sharing.enforcement import Capabilities, with_sharing
from agent.sharing.responses import ShareSettings
from agent.sharing.sharing_mode import parse
from protos import matrix
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Grant
from tests.fakes import machines

ABLE = Capabilities("an old driver", "", "")
WAYS = parse("0,1: mps; 2: watch; 3: kernel")
TOPOLOGY = with_sharing(survey(machines.machine(5)), WAYS, ABLE, {}, {})
IDS = tuple(share_id(machines.uuid(1), number) for number in range(30))


def test_each_grant_says_how_its_cap_holds() -> None:
    grants = (
        Grant("team", "a", "c", GPU_SHARE, IDS),
        Grant("team", "w", "c", GPU, (machines.uuid(4),)),
    )
    state = NodeState(topology=TOPOLOGY, grants=grants)

    class Shown(Collector):
        def collect(self):  # type: ignore[no-untyped-def]  # the base class says it
            return families(share_families(state, {IDS: ShareSettings("mps", 2**30)}, {IDS: 77}))

    registry = CollectorRegistry()
    registry.register(Shown())
    text = generate_latest(registry).decode()
    holder = 'container="c",enforcement="mps",gpu="1",namespace="team",pod="a"'
    assert f"lockstep_grant_gpu_hundredths{{{holder}}} 30.0" in text
    assert f"lockstep_grant_gpu_share_memory_used_bytes{{{holder}}} 77.0" in text
    assert 'enforcement="whole",gpu="4",namespace="team",pod="w"} 100.0' in text
    assert (
        f'lockstep_gpu_shares{{enforcement="mps",gpu="0",uuid="{machines.uuid(0)}"}} 100.0' in text
    )
    assert (
        f'lockstep_gpu_shares{{enforcement="none",gpu="3",uuid="{machines.uuid(3)}"}} 0.0' in text
    )


def test_the_table_says_how_gpus_are_shared_and_why_not() -> None:
    lines = matrix.table(TOPOLOGY).splitlines()
    assert "  GPU0, GPU1: mps" in lines
    assert "  GPU2: watch" in lines
    assert "  GPU3: not shared by kernel: an old driver" in lines
    whole = replace(TOPOLOGY, gpus=tuple(replace(g, shares=0, share_why="") for g in TOPOLOGY.gpus))
    assert "Shared GPUs" not in matrix.table(whole)
