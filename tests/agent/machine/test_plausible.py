"""Whatever driver and /sys say, the scheduler accepts the report, and a device that lies does not cost the others."""

from dataclasses import fields, is_dataclass, replace
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from agent.machine import capture, plausible
from agent.machine.facts import (
    InfinibandDevice,
    Machine,
    NvmlFacts,
    Platform,
    RdmaCgroup,
    RdmaDeviceLimit,
    SliceFacts,
    SysfsFacts,
)
from agent.machine.survey import survey
from central.server.grpc import report_bounds
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import NodeTopology
from tests.agent.nvml_fixture import CAPTURES, NAMES

MACHINE = capture.load(CAPTURES / "hgx-h100-8.json")
GPUS = MACHINE.nvml.gpus


def accepted(machine: Machine) -> NodeTopology:
    """The topology as the scheduler gets it."""
    sent = pb.NodeReport(node="n", topology=wire.to_topology(survey(machine)))
    report = pb.NodeReport.FromString(sent.SerializeToString())
    report_bounds.check(report)
    return wire.from_topology(report.topology)


def with_gpu(index: int, **changes: Any) -> Machine:
    gpus = tuple(replace(g, **changes) if g.index == index else g for g in GPUS)
    return replace(MACHINE, nvml=replace(MACHINE.nvml, gpus=gpus))


@pytest.mark.parametrize("name", NAMES)
def test_a_real_machine_is_left_as_it_is(name: str) -> None:
    machine = capture.load(CAPTURES / f"{name}.json")
    assert plausible.checked(machine) == (machine, ())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uuid": "GPU-\udcff\n"}, 'NVML says that its UUID is "GPU-??"'),
        ({"uuid": "G" * 64}, 'NVML says that its UUID is "GGG'),
        ({"uuid": ""}, 'NVML says that its UUID is ""'),
        ({"uuid": GPUS[1].uuid}, "NVML says that it has the UUID of GPU 1"),
        ({"memory_bytes": 2**64 - 1}, "NVML says that it has 18446744073709551615 bytes of memory"),
        ({"memory_bytes": -1}, "NVML says that it has -1 bytes of memory"),
        ({"uuid": "", "fault": "fell off the bus"}, "fell off the bus"),
    ],
)
def test_a_gpu_with_an_impossible_identity_is_alone_unhealthy(
    changes: dict[str, Any], why: str
) -> None:
    seen = accepted(plausible.checked(with_gpu(3, **changes))[0])
    assert [gpu.healthy for gpu in seen.gpus] == [index != 3 for index in range(8)]
    assert seen.gpus[3].why.startswith(why)
    assert len({gpu.uuid for gpu in seen.gpus}) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "\udcff" * 5000},
        {"pci": "../../etc/passwd"},
        {"minor": -7, "memory_numa": 2**40, "module_id": 2**63},
        {"cpu_affinity": "0-" * 9999, "memory_affinity": "\0"},
        {
            "slices": (SliceFacts(GPUS[0].uuid), SliceFacts("MIG-1", "x" * 999, 2**31, -1)),
            "mig": True,
        },
        {"platform": Platform("\x1b[2J" * 999, 1, 2, 3, 4)},
    ],
)
def test_other_impossible_values_count_as_unknown(changes: dict[str, Any]) -> None:
    seen = accepted(plausible.checked(with_gpu(3, **changes))[0])
    assert all(gpu.healthy for gpu in seen.gpus)
    assert not seen.gpus[3].slices


def test_a_slice_counts_once() -> None:
    part = SliceFacts("MIG-1", "1g.10gb", 1, 0)
    checked, _ = plausible.checked(with_gpu(3, mig=True, slices=(part, part)))
    assert checked.nvml.gpus[3].slices == (part,)


def test_the_largest_plausible_values_stay() -> None:
    largest = {"minor": plausible.SMALL, "memory_bytes": plausible.GPU_MEMORY}
    machine = with_gpu(3, **largest, pcie_width=plausible.PCIE)
    assert plausible.checked(machine) == (machine, ())


def test_limits_of_rdma_beyond_the_kernels_count_as_those() -> None:
    limits = (RdmaDeviceLimit("mlx5_0", 2**40, 2**40), RdmaDeviceLimit("mlx5_1"))
    machine = replace(MACHINE, sysfs=replace(MACHINE.sysfs, rdma_cgroup=RdmaCgroup(2, limits)))
    checked, _ = plausible.checked(machine)
    accepted(checked)
    assert checked.sysfs.rdma_cgroup is not None
    most = RdmaDeviceLimit("mlx5_0", plausible.AMOUNT, plausible.AMOUNT)
    assert checked.sysfs.rdma_cgroup.limits == (most, limits[1])


@pytest.mark.parametrize(("count", "words"), [(62, 0), (63, 1)])
def test_one_gpu_too_many_is_said(count: int, words: int) -> None:
    gpus = tuple(replace(GPUS[0], index=n, uuid=f"GPU-{n}") for n in range(count))
    checked, notes = plausible.checked(Machine(NvmlFacts(gpus=gpus), SysfsFacts()))
    assert (len(checked.nvml.gpus), len(notes)) == (62, words)


def test_too_many_devices_are_cut_with_a_word() -> None:
    gpus = tuple(replace(GPUS[0], index=n, uuid=f"GPU-{n}") for n in range(1000))
    nics = tuple(InfinibandDevice(f"mlx5_{n}") for n in range(1000))
    broken = InfinibandDevice("mlx5 0;reboot")
    machine = Machine(NvmlFacts(gpus=gpus), SysfsFacts(infiniband=(*nics, broken)))
    checked, notes = plausible.checked(machine)
    assert len(accepted(checked).gpus) == plausible.GPUS
    assert len(checked.sysfs.infiniband) == plausible.NICS
    assert (
        notes
        == (
            "the driver lists 1000 GPUs; 62 are used",
            "1 RDMA devices are left out: their names cannot be those of devices",
            "/sys lists 1001 RDMA devices; 512 are used",
        )
        or notes[2] == "/sys lists 1000 RDMA devices; 512 are used"
    )


TEXTS = (
    "",
    "GPU-0",
    "GPU-1",
    "0000:07:00.0",
    "0-3,8",
    "a" * 999,
    "\udcff",
    "\0",
    "²",
    "ACTIVE",
    "7g.x",
)
NUMBERS = (-(2**65), -(2**31) - 1, -2, -1, 0, 1, 7, 65536, 2**31, 2**32, 2**47 + 1, 2**63, 2**64)
CHOSEN: dict[tuple[str, str], tuple[Any, ...]] = {
    ("NvLink", "remote"): ("gpu", "switch", ""),
    ("RdmaCgroup", "version"): (1, 2),
}


def anything(kind: Any, dice: Random) -> Any:
    """Facts of this type with something in each field, mostly impossible."""
    if get_origin(kind) is tuple:
        return tuple(anything(get_args(kind)[0], dice) for _ in range(dice.randrange(4)))
    if get_origin(kind) in (Union, UnionType):
        return anything(dice.choice(get_args(kind)), dice)
    if kind is NoneType:
        return None
    if not is_dataclass(kind):
        return dice.choice({str: TEXTS, int: NUMBERS, bool: (False, True)}[kind])
    made: Any = kind
    hints = get_type_hints(made)
    given = {}
    for name in (each.name for each in fields(made)):
        choice = CHOSEN.get((made.__name__, name))
        given[name] = dice.choice(choice) if choice else anything(hints[name], dice)
    return made(**given)


@pytest.mark.parametrize("seed", range(10))
def test_the_scheduler_accepts_what_is_left_of_any_machine(seed: int) -> None:
    dice = Random(seed)
    for _ in range(50):
        accepted(plausible.checked(anything(Machine, dice))[0])
