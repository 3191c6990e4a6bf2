"""The kubelet's checkpoint of devices with every field hostile: the other pods' entries are read, what is left out is
named with its field, and nothing but OSError is raised."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.kubelet import checkpoint
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.mig import orphans
from agent.node import AgentNode
from agent.sharing.responses import AllocateResponses
from protos.names import GPU, GPU_SHARE
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import NodeTopology
from tests.agent.hostile.hostile_files import State, states
from tests.agent.hostile.reported import accepted
from tests.central.poison.by_field.field_check import as_sent
from tests.central.poison.by_field.field_walk import MANY, Change, apply, changes
from tests.central.poison.by_field.hostile_values import Value
from tests.effort import TODAY
from tests.own_time import own_time

READ_S = 12.0  # of processor time
GOOD_UID = "22222222-2222-3333-4444-000000000001"
SETTINGS = {"LOCKSTEP_GPU_ENFORCEMENT": "watch", "LOCKSTEP_GPU_MEMORY": "1024"}


def entry(uid: str, resource: str, *ids: str, **envs: str) -> dict[str, Any]:
    slices = {orphans.ANNOTATION: "MIG-1=GPU-1/1/0"}
    answer = pb.ContainerAllocateResponse(envs=envs, annotations=slices)
    return {
        "PodUID": uid,
        "ContainerName": "c0",
        "ResourceName": resource,
        "DeviceIDs": {"0": list(ids), "-1": None},
        "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
    }


def example() -> dict[str, Any]:
    entries = [
        entry(GOOD_UID, GPU, "GPU-1"),
        entry("11111111-2222-3333-4444-000000000000", GPU_SHARE, "GPU-2::0", **SETTINGS),
        entry("33333333-2222-3333-4444-000000000000", "nvidia.com/mig-1g.10gb", "MIG-1"),
    ]
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}


def hostile(each: int | None) -> Iterator[Change]:
    """Changes below the second and third entry, and of what is around them."""
    dice = random.Random(f"checkpoint {TODAY}")
    by_path: dict[Any, list[Change]] = {}
    for change in changes(example()):
        if change.path[:3] != ("Data", "PodDeviceEntries", 0):
            by_path.setdefault(change.path, []).append(change)
    for found in by_path.values():
        yield from found if each is None else dice.sample(found, min(each, len(found)))


def written(folder: Path, raw: Any) -> None:
    (folder / checkpoint.NAME).write_bytes(as_sent(raw))


def use(folder: Path, where: str) -> None:
    """As the parts of the agent do that read it."""
    node = AgentNode("n")
    unlisted = UnlistedPods(folder, folder / "cgroup", folder / "proc")
    node.set_grants((), unlisted.allocations(None), forgotten=unlisted.forgotten(None))
    node.set_topology(NodeTopology())
    accepted(node, where)
    unlisted.addresses({"MIG-1"})
    responses = AllocateResponses(folder)
    responses.get(("GPU-2::0",))
    responses.current(node.state)


@pytest.mark.parametrize(
    "each", [8, pytest.param(None, marks=pytest.mark.nightly)], ids=["few", "all"]
)
def test_a_field_of_the_checkpoint(each: int | None, tmp_path: Path) -> None:
    seen = left_out = 0
    for change in hostile(each):
        written(tmp_path, apply(example(), change))
        with own_time() as spent:
            found, refused = read(tmp_path)
        if refused:
            assert change.path in (("Data",), ("Data", "PodDeviceEntries")), f"{change}: {refused}"
        elif len(change.path) > 2 or change.path == ("Checksum",):
            assert GOOD_UID in [one.uid for one in found.entries], change
        _named(change, found)
        left_out += bool(found.left_out)
        assert spent.seconds < READ_S or change.how == MANY, change
        use(tmp_path, str(change))
        seen += 1
    assert seen > 150
    assert left_out > 30


def read(folder: Path) -> tuple[checkpoint.Checkpoint, str]:
    """What is read, or why nothing is."""
    try:
        return checkpoint.read_all(folder), ""
    except OSError as error:
        return checkpoint.Checkpoint(), told(str(error))


def told(sentence: str) -> str:
    assert checkpoint.NAME in sentence
    assert sentence.isprintable(), sentence
    assert len(sentence) < 400, sentence
    return sentence


def _named(change: Change, found: checkpoint.Checkpoint) -> None:
    """What is left out is the changed entry, with the changed field."""
    for sentence in found.left_out:
        told(sentence)
    if found.left_out and len(change.path) > 3 and change.how not in ("deleted", "moved"):
        _, _, number, field, *_ = change.path
        assert f"Data.PodDeviceEntries[{number}].{field}" in found.left_out[0], change


@pytest.mark.parametrize("state", list(states()), ids=lambda each: each.name)
def test_the_file(state: State, tmp_path: Path) -> None:
    written(tmp_path, example())
    state.become(tmp_path / checkpoint.NAME)
    found, refused = read(tmp_path)
    assert found.entries == ()
    assert refused or state.name in ("missing", "a link to nothing")
    use(tmp_path, state.name)


def test_a_mended_checkpoint_is_read_again(tmp_path: Path) -> None:
    unlisted = UnlistedPods(tmp_path, tmp_path / "cgroup")
    (tmp_path / checkpoint.NAME).write_text("[" * 100_000)
    assert unlisted.allocations(None) == ()
    written(tmp_path, example())
    assert len(unlisted.allocations(None)) == 3


ANSWERS = (
    Value("another alphabet", "ä"),
    Value("no message", base64.b64encode(b"\xff").decode()),
    Value("no base64", "%"),
    Value("a lone surrogate", "\ud800"),
)
CAPS = ("²", "9" * 5000, "-1", "1e9", "", "0x10", " 1")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda each: each.name)
def test_an_answer_that_says_nothing(answer: Value, tmp_path: Path) -> None:
    raw = example()
    raw["Data"]["PodDeviceEntries"][1]["AllocResp"] = answer.of
    written(tmp_path, raw)
    assert AllocateResponses(tmp_path).get(("GPU-2::0",)).cap == 0


@pytest.mark.parametrize("cap", CAPS)
def test_a_cap_that_is_no_amount(cap: str, tmp_path: Path) -> None:
    raw = example()
    raw["Data"]["PodDeviceEntries"][1] = entry("u", GPU_SHARE, "GPU-2::0", LOCKSTEP_GPU_MEMORY=cap)
    (tmp_path / checkpoint.NAME).write_text(json.dumps(raw))
    assert AllocateResponses(tmp_path).get(("GPU-2::0",)).cap == 0
