"""What is allocated on a node, and which devices must not be allocated beside it."""

from dataclasses import replace

from agent.allocations import (
    KEPT_S,
    Allocated,
    Allocation,
    Forgotten,
    addresses,
    allocated,
    held_back,
    slices_held,
    unconfirmed,
)
from protos.names import GPU, GPU_SHARE
from protos.nearest import BETWEEN
from protos.topology import Grant, NodeTopology
from tests.central import factories

SLICE, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
# GPUs 0 and 1, and GPU 2 in MIG mode with MIG-0 and MIG-1.
TOPOLOGY = factories.sliced(factories.topology(2), 2)
GPU_IDS = [gpu.uuid for gpu in TOPOLOGY.gpus]


def share(gpu: int, number: int) -> str:
    return f"{GPU_IDS[gpu]}{BETWEEN}{number}"


def grant(resource: str, *ids: str, pod: str = "p") -> Grant:
    return Grant("ns", pod, "main", resource, tuple(sorted(ids)))


def state(*held: Grant, known: dict[str, tuple[str, int, int]] | None = None) -> Allocated:
    return allocated(held, (), addresses(TOPOLOGY) if known is None else known)


def refusal(held: Allocated, resource: str, *ids: str, topology: NodeTopology = TOPOLOGY) -> str:
    return held.refusal(resource, ids, topology)


def test_grants_and_answers_that_are_not_listed_yet_count_once() -> None:
    mine = grant(GPU, GPU_IDS[1])
    answers = (
        Allocation(GPU, mine.device_ids),
        Allocation(GPU_SHARE, (share(0, 1), share(0, 2))),
        Forgotten(SLICE, ("MIG-1",), "its pod runs"),
    )
    found = allocated(
        [mine, grant(GPU_SHARE, share(0, 2), share(0, 3))], answers, addresses(TOPOLOGY)
    )
    assert found.whole == {GPU_IDS[1]}
    assert found.shared == {GPU_IDS[0]: 3}
    assert found.sliced == {GPU_IDS[2]}
    assert found.holders == {(GPU_IDS[2], 1, 0): {(SLICE, "MIG-1")}}


def test_whole_gpus_and_shares_exclude_each_other() -> None:
    held = state(grant(GPU, GPU_IDS[0]), grant(GPU_SHARE, share(1, 1)))
    assert refusal(held, GPU, GPU_IDS[0]) == ""
    assert refusal(held, GPU, *GPU_IDS[:2]) == "GPU 1 is in use in shares"
    assert refusal(held, GPU_SHARE, share(1, 2)) == ""
    assert refusal(held, GPU_SHARE, share(0, 1)) == "GPU 0 is in use as a whole"


def test_a_share_is_on_one_gpu() -> None:
    said = "request spans 2 GPUs (GPU 0,1); a share must fit on one GPU"
    assert refusal(state(), GPU_SHARE, share(1, 1), share(0, 1), share(0, 2)) == said
    assert refusal(state(), GPU_SHARE, share(0, 1), share(0, 2)) == ""
    assert refusal(state(), GPU, *GPU_IDS[:2]) == ""


def test_of_a_gpu_in_mig_mode_only_slices_are_allocated() -> None:
    said = "GPU 2 is in MIG mode; only its slices can be allocated"
    assert refusal(state(), GPU, *GPU_IDS) == said
    assert refusal(state(), GPU_SHARE, share(2, 1)) == said
    assert refusal(state(), SLICE, "MIG-0") == ""
    left = replace(TOPOLOGY.gpus[2], mig=False)
    plain = replace(TOPOLOGY, gpus=(*TOPOLOGY.gpus[:2], left))
    held = state(grant(SLICE, "MIG-0"))
    assert refusal(held, GPU, GPU_IDS[2], topology=plain) == "GPU 2 has slices in use"
    assert refusal(held, GPU, GPU_IDS[0], topology=plain) == ""


def test_a_gpu_that_the_node_does_not_have_is_named_by_its_id() -> None:
    held = state(grant(GPU_SHARE, f"GPU-gone{BETWEEN}1"))
    assert refusal(held, GPU, "GPU-gone") == "GPU GPU-gone is in use in shares"


def test_slices_are_of_the_profile_and_on_a_gpu_that_is_not_used_otherwise() -> None:
    gone = "this node has no slice MIG-0 of nvidia.com/mig-2g.10gb"
    assert refusal(state(), LARGE, "MIG-0") == gone
    whole = state(grant(GPU, GPU_IDS[2]))
    assert refusal(whole, SLICE, "MIG-1", "MIG-0") == "GPU 2 is in use as a whole"
    shared = state(grant(GPU_SHARE, share(2, 1)))
    assert refusal(shared, SLICE, "MIG-0") == "GPU 2 is in use in shares"
    assert refusal(state(grant(SLICE, "MIG-0")), SLICE, "MIG-0", "MIG-1") == ""


def test_a_slice_at_the_address_of_one_that_a_pod_still_holds_is_withheld() -> None:
    known = {**addresses(TOPOLOGY), "MIG-old": (GPU_IDS[2], 1, 0)}
    held = state(grant(SLICE, "MIG-old"), known=known)
    said = "GPU 2's 1g.5gb (gi 1, ci 0) has the address of a former slice that a pod holds"
    assert refusal(held, SLICE, "MIG-0") == ""
    assert refusal(held, SLICE, "MIG-1") == said
    unknown = state(grant(SLICE, "MIG-older"), known=known)
    assert refusal(unknown, SLICE, "MIG-1") == ""
    assert not unknown.sliced


def test_addresses_tell_slices_apart() -> None:
    assert addresses(TOPOLOGY) == {"MIG-0": (GPU_IDS[2], 0, 0), "MIG-1": (GPU_IDS[2], 1, 0)}
    held: list[Grant | Allocation | Forgotten] = [
        grant(GPU, GPU_IDS[0]),
        Allocation(SLICE, ("MIG-0",)),
        Forgotten(SLICE, ("MIG-1",), ""),
    ]
    assert slices_held(held) == {"MIG-0", "MIG-1"}


def test_what_a_forgotten_pod_uses_is_held_back() -> None:
    sick = replace(TOPOLOGY.gpus[0], healthy=False, why="XID 79")
    topology = replace(TOPOLOGY, gpus=(sick, *TOPOLOGY.gpus[1:]))
    forgotten = [
        Forgotten(GPU, tuple(GPU_IDS[:2]), "process 7 uses it"),
        Forgotten(SLICE, ("MIG-1",), "process 8 uses it"),
    ]
    first, second, third = held_back(topology, forgotten).gpus
    assert (first.healthy, first.why) == (False, "XID 79")
    assert (second.healthy, second.why) == (False, "held back: process 7 uses it")
    assert third.healthy
    assert [part.healthy for part in third.slices] == [True, False]
    assert third.slices[1].why == "held back: process 8 uses it"
    assert held_back(topology, []) is topology
    whole = held_back(topology, [Forgotten(GPU, (third.uuid,), "process 9 uses it")]).gpus[2]
    assert [part.why for part in whole.slices] == ["held back: process 9 uses it"] * 2


def test_an_answer_is_open_until_it_is_listed_given_up_or_old() -> None:
    first, second, third = (
        Allocation(GPU, (uuid,), at) for uuid, at in zip(GPU_IDS, (10.0, 11.0, 12.0), strict=True)
    )
    every = (first, second, third)
    assert unconfirmed(every, [], 10.0 + KEPT_S - 0.1) == every
    assert unconfirmed(every, [], 10.0 + KEPT_S) == (second, third)
    listed = [grant(GPU, GPU_IDS[1]), grant(GPU_SHARE, GPU_IDS[2])]
    assert unconfirmed(every, listed, 12.0) == (first, third)
    assert unconfirmed(every, [], 12.0, lambda each: each is first) == (second, third)
