"""Ids of other device plugins are reduced to the GPUs and slices that their pods use. The formats are those of NVIDIA's
plugin 0.20, HAMi 2.10, Volcano's vGPU plugin and gpushare; KAI's reservation pods hold devices of NVIDIA's plugin."""

import base64
import random
from dataclasses import replace
from pathlib import Path

import pytest

from agent.kubelet.checkpoint import Entry
from agent.machine import capture
from agent.machine.survey import survey
from agent.other_plugins import Holding, held, is_certain, is_own
from protos import slicing
from protos.names import GPU, GPU_SHARE, RDMA
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import NodeTopology
from tests.fakes import machines

CAPTURES = Path(__file__).parents[1] / "captures"
WHOLE = survey(machines.machine())
MIG = survey(capture.load(CAPTURES / "dgx-a100-mig-8.json"))
IN_MIG = {gpu.uuid for gpu in MIG.gpus if gpu.mig}
PARTS = [part.uuid for _, part in slicing.of(MIG)]
SHARED = "nvidia.com/gpu.shared"
FOLDER = "/var/run/nvidia-container-devices"
ABSENT = "GPU-99999999-0000-4000-8000-000000000000"


def reduced(holding: Holding, topology: NodeTopology = WHOLE) -> set[str]:
    return {each for one in held([holding], topology) for each in one.device_ids}


def visible(**answer: object) -> tuple[str, ...]:
    made = pb.ContainerAllocateResponse(**answer)  # type: ignore[arg-type]  # by name
    text = base64.b64encode(made.SerializeToString()).decode()
    return Entry("u", "c", GPU, ("x",), text).visible()


def answer(names: list[str], how: str) -> tuple[str, ...]:
    """What a plugin's answer shows for devices with these names, by its deviceListStrategy."""
    cdi = [f"k8s.device-plugin.nvidia.com/gpu={name}" for name in names]
    if how == "envvar":
        return visible(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(names), "NVIDIA_GDS": "enabled"})
    if how == "volume-mounts":
        paths = [*(f"{FOLDER}/{name}" for name in names), f"{FOLDER}/imex/0", "/etc/ld.so.preload"]
        return visible(
            envs={"NVIDIA_VISIBLE_DEVICES": FOLDER},
            mounts=[pb.Mount(host_path="/dev/null", container_path=path) for path in paths],
        )
    more = ["nvidia.com/gds=all", "k8s.device-plugin.nvidia.com/imex-channel=0"]
    if how == "cdi-annotations":
        key = "cdi.k8s.io/nvidia-device-plugin_2f6c"
        return visible(annotations={key: ",".join([*cdi, *more])})
    return visible(cdi_devices=[pb.CDIDevice(name=name) for name in (*cdi, *more)])


STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")


@pytest.mark.parametrize("seed", range(20))
def test_ids_in_random_formats(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        topology = dice.choice((WHOLE, MIG))
        devices = [gpu.uuid for gpu in topology.gpus] + (PARTS if topology is MIG else [])
        used = set(dice.sample(devices, dice.randint(1, 3)))
        form = dice.choice(("{}::{}", "{}-{}", "{}-memory-{}", "{}-core-{}", "{}-_-{}"))
        resource = dice.choice((GPU, SHARED, "nvidia.com/a100", "volcano.sh/vgpu-number"))
        ids = tuple(form.format(each, dice.randint(0, 99)) for each in used for _ in range(2))
        assert not is_own(resource, ids)
        assert reduced(Holding("pod t/p", resource, ids), topology) == used, (ids, resource)
        # HAMi's ids are arbitrary: the answer tells
        others = tuple(f"{dice.choice(devices)}-{n}" for n in range(len(used)))
        by_index = {gpu.uuid: str(gpu.index) for gpu in topology.gpus}
        names = [dice.choice((each, by_index.get(each, each))) for each in used]
        told = answer(names, dice.choice(STRATEGIES))
        assert reduced(Holding("pod t/p", GPU, others, told), topology) == used, (names, told)


@pytest.mark.parametrize("how", STRATEGIES)
def test_what_the_plugin_answered_counts_where_ids_are_arbitrary(how: str) -> None:
    three, five = machines.uuid(3), machines.uuid(5)
    for names in ([three], ["3"], ["gpu3"]):
        told = answer(names, how)
        assert reduced(Holding("pod t/p", GPU, (f"{five}-7",), told)) == {three}
        # NVIDIA's ids name the device; indices may have changed since
        assert reduced(Holding("pod t/p", GPU, (f"{five}::7",), told)) == {five}
    assert reduced(Holding("pod t/p", GPU, (f"{five}-7",), answer(["all"], how))) == set(
        map(machines.uuid, range(8))
    )
    assert reduced(Holding("pod t/p", GPU, (f"{five}-7",), visible(envs={"CUDA": "0"}))) == {five}
    [sliced, *_] = [gpu for gpu in MIG.gpus if gpu.mig]
    for name in (f"{sliced.index}:1", f"mig{sliced.index}:1"):
        told = answer([name], how)
        assert reduced(Holding("pod t/p", GPU, (f"{five}-7",), told), MIG) == {sliced.uuid}


def test_slices_are_held_back_as_slices_and_gpus_as_gpus() -> None:
    part = PARTS[0]
    ids = (f"{part}::1", f"{MIG.gpus[0].uuid}::0")
    found = held([Holding("pod t/p", GPU, ids)], MIG)
    profile = next(each.profile for _, each in slicing.of(MIG) if each.uuid == part)
    assert [(one.resource, one.device_ids) for one in found] == [
        (GPU, (MIG.gpus[0].uuid,)),
        (slicing.resource(profile), (part,)),
    ]
    assert not is_own(GPU, (part,)), "strategy single: a slice under the name of GPUs"
    assert is_own(slicing.resource(profile), (part,))


@pytest.mark.parametrize(
    ("resource", "ids", "expected"),
    [
        (GPU, ("tegra",), "all"),
        (GPU, ("8",), "all"),  # there is no GPU 8
        (GPU, ("2",), {machines.uuid(2)}),
        (GPU, ("2::4",), {machines.uuid(2)}),
        (SHARED, ("slot-1",), "all"),
        ("volcano.sh/vgpu-memory", ("x-memory-1",), "all"),
        ("nvidia.com/a100", ("MIG-0", f"{machines.uuid(1)}::2"), "all"),
        (GPU, ("0000:13:00.0",), {machines.uuid(3)}),
        (GPU, (f"{ABSENT}::1",), set()),  # on no GPU of this node
        (GPU, (f"MIG-{ABSENT}/1/0",), set()),
        ("nvidia.com/mig-1g.5gb", (f"MIG-{machines.uuid(4)}/1/0::2",), {machines.uuid(4)}),
        ("nvidia.com/hostdev", ("0000:99:00.2",), set()),
        (
            "nvidia.com/GA102GL_A10",
            ("45",),
            set(),
        ),  # for virtual machines, not with NVIDIA's driver
        ("amd.com/gpu", ("0",), set()),
        ("example.com/fpga", ("f0", "2"), set()),
        ("example.com/gpu", (f"{machines.uuid(6)}-0",), {machines.uuid(6)}),
    ],
)
def test_what_no_device_is_known_for_may_be_any_that_it_could_be(
    resource: str, ids: tuple[str, ...], expected: set[str] | str
) -> None:
    gpus = {gpu.uuid for gpu in WHOLE.gpus} if expected == "all" else expected
    found = held([Holding("pod t/p", resource, ids)], WHOLE)
    assert {each for one in found for each in one.device_ids} == gpus
    for one in found:
        assert len(one.device_ids) == 1
        assert ("may use it: the agent finds no GPU for" in one.why) == (expected == "all")


def test_an_unknown_slice_may_be_on_any_gpu_in_mig_mode() -> None:
    holding = Holding("pod t/p", "nvidia.com/mig-1g.5gb", ("MIG-00000000::1",))
    assert reduced(holding, MIG) == IN_MIG
    assert reduced(holding, WHOLE) == {gpu.uuid for gpu in WHOLE.gpus}
    assert reduced(replace(holding, device_ids=("x",)), MIG) == {gpu.uuid for gpu in MIG.gpus}


@pytest.mark.parametrize(
    ("resource", "ids", "own"),
    [
        (GPU, (machines.uuid(0), machines.uuid(1)), True),
        (GPU, (machines.uuid(0), f"{machines.uuid(1)}::0"), False),
        (GPU, (f"{machines.uuid(1)}-0",), False),
        (GPU, (f"MIG-{machines.uuid(1)}/1/0",), False),
        (GPU_SHARE, (f"{machines.uuid(1)}::0",), True),
        (RDMA, ("mlx5_0::3",), True),
        ("nvidia.com/mig-1g.5gb", ("MIG-1",), True),
        ("nvidia.com/mig-1g.5gb", ("MIG-1::0",), False),
        ("nvidia.com/mig-1g.5gb", (machines.uuid(0),), False),
        (SHARED, (f"{machines.uuid(1)}::0",), False),
        (SHARED, (machines.uuid(1),), False),
    ],
)
def test_own_ids(resource: str, ids: tuple[str, ...], own: bool) -> None:
    assert is_own(resource, ids) == own
    assert is_certain(resource, ids) == own


def test_ids_of_no_known_form_are_compared_with_the_gpus() -> None:
    odd = f"{machines.uuid(1)}a"
    assert is_own(GPU, (odd,))
    assert not is_certain(GPU, (odd,))
    assert reduced(Holding("pod t/p", GPU, (odd,))) == {gpu.uuid for gpu in WHOLE.gpus}
    named = replace(WHOLE, gpus=(replace(WHOLE.gpus[0], uuid=odd), *WHOLE.gpus[1:]))
    assert reduced(Holding("pod t/p", GPU, (odd,)), named) == set(), "as this agent names it"
    assert reduced(Holding("pod t/p", SHARED, (odd,)), named) == {odd}


def test_a_resource_of_any_name_holds_the_gpus_of_its_answer() -> None:
    assert reduced(Holding("pod t/p", "corp.example/slot", ("a",), ("3",))) == {machines.uuid(3)}
    assert reduced(Holding("pod t/p", "corp.example/slot", ("a",), ("void", ""))) == set()


def test_the_reason_names_the_pod_the_id_and_the_resource() -> None:
    ids = (f"{machines.uuid(3)}::1",)
    [found] = held([Holding("pod team/web", SHARED, ids)], WHOLE)
    why = f"pod team/web has {ids[0]} of {SHARED} from another device plugin"
    assert found.why == why
    [found] = held(
        [Holding(who, SHARED, ids) for who in ("pod x/c", "pod team/web", "pod x/b")], WHOLE
    )
    assert found.why == f"{why} (and 2 more)"
    renamed = replace(WHOLE, gpus=WHOLE.gpus[:3])
    assert held([Holding("pod team/web", SHARED, ids)], renamed) == (), "the GPU is gone"
