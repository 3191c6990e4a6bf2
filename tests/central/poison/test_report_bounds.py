"""The bounds of an agent's report, written down once more: the outermost values are accepted, the next ones refused
with the field's name."""

from collections.abc import Callable
from typing import Any

import pytest

from central.model import limits
from central.server.grpc import report_bounds
from central.server.grpc.report_bounds import MalformedReport
from protos.stubs import fleet_pb2 as pb
from tests.central.poison.by_field.test_hostile_messages import rich

INT64 = 2**63 - 1
SMALL = 65536
GPU, HCA, SLICE = "topology.gpus[0]", "topology.hcas[0]", "topology.gpus[0].slices[0]"
# field, least, most. None: the type of the field has no lower, or no higher value
NUMBERS: list[tuple[str, int | None, int | None]] = [
    ("rdma_use[0].failures", -1, None),
    ("rdma_use[0].current.hca_handle", -1, None),
    ("rdma_use[0].current.hca_object", -1, None),
    ("rdma_use[0].limit.hca_handle", -1, None),
    ("rdma_use[0].limit.hca_object", -1, None),
    ("memory_over[0].gpu", None, 61),
    ("memory_over[0].used", 0, None),
    ("memory_over[0].cap", 0, None),
    ("gpu_use[0].memory", -1, None),
    ("topology.memlock", -1, None),
    (f"{GPU}.numa", -1, SMALL),
    (f"{GPU}.gpu_numa", -1, SMALL),
    (f"{GPU}.slot", -1, SMALL),
    (f"{GPU}.tray", -1, SMALL),
    (f"{GPU}.memory_bytes", None, 2**47),
    (f"{GPU}.shares", None, 100),
    (f"{SLICE}.memory_bytes", None, 2**47),
    (f"{SLICE}.gi", None, SMALL),
    (f"{SLICE}.ci", None, SMALL),
    (f"{HCA}.numa", -1, SMALL),
    (f"{HCA}.shares", None, 1024),
    (f"{HCA}.port", None, SMALL),
    ("topology.rdma_cgroup.devices[mlx5_0].hca_handle", -1, 2**31 - 1),
    ("topology.rdma_cgroup.devices[mlx5_0].hca_object", -1, 2**31 - 1),
    ("topology.rdma_cgroup.default.hca_handle", -1, 2**31 - 1),
    ("topology.rdma_cgroup.default.hca_object", -1, 2**31 - 1),
    ("topology.numa_nodes[0].id", 0, SMALL),
    ("topology.weak[0].a", None, 3),
    ("topology.weak[0].b", None, 3),
    ("grants[0].limits[share]", -1, 100),
    ("grants[0].limits[memory]", -1, 2**47),
]
RATES = [f"{HCA}.rate_gbps", "topology.bandwidth[3].gb_per_s[2]"]
# a list, how many it may have, and an entry of it; a report of 4 GPUs and 2 NICs
LISTS: list[tuple[str, int, Callable[[int], Any]]] = [
    ("grants", 16_384, lambda i: pb.Grant(pod=f"p{i}")),
    ("rdma_use", 16_384, lambda i: pb.RdmaUse(pod=f"p{i}")),
    ("memory_over", 16_384, lambda i: pb.MemoryOver(pod=f"p{i}")),
    ("gpu_use", 1024, lambda i: pb.GpuUse(pod=f"p{i}")),
    ("prepared", 16_384, lambda i: pb.ClaimPlan(uid=f"u{i}")),
    ("prepared[0].devices", 32, lambda i: pb.ClaimDevice(device=f"gpu-{i}")),
    ("topology.gpus", 62, lambda i: pb.Gpu(uuid=f"G{i}")),
    ("topology.hcas", 512, lambda i: pb.Hca(name=f"m{i}")),
    ("topology.links", 6, lambda i: pb.LinkRow()),
    ("topology.islands", 4, lambda i: pb.Island()),
    ("topology.islands[0].gpus", 62, lambda i: 0),
    ("topology.pcie_switches", 4, lambda i: pb.Island()),
    ("topology.pcie_switches[0].gpus", 62, lambda i: 0),
    ("topology.numa_nodes", 4096, lambda i: pb.NumaNode()),
    ("topology.bandwidth", 4, lambda i: pb.PairRow()),
    ("topology.bandwidth[0].gb_per_s", 4, lambda i: 1.0),
    ("topology.weak", 16, lambda i: pb.Weak()),
    (f"{GPU}.slices", 64, lambda i: pb.Slice(uuid=f"M{i}", profile="p")),
    ("grants[0].device_ids", 4096, lambda i: "GPU-0"),
]
# a text, how many characters it may have
TEXTS = [
    ("node", 253),
    ("boot_id", 253),
    ("agent_version", 253),
    ("grants[0].pod", 1024),
    ("grants[0].namespace", 1024),
    ("grants[0].container", 1024),
    ("grants[0].resource", 1024),
    ("grants[0].device_ids[0]", 253),
    ("rdma_use[0].card", 1024),
    ("memory_over[0].uid", 1024),
    ("claims", 253),
    ("prepared[0].uid", 1024),
    ("prepared[0].devices[0].device", 1024),
    ("topology.driver_version", 1024),
    ("topology.cuda_version", 1024),
    (f"{GPU}.uuid", 253),
    (f"{GPU}.why", 1024),
    (f"{GPU}.clique", 1024),
    (f"{SLICE}.profile", 1024),
    (f"{HCA}.name", 253),
    (f"{HCA}.why", 1024),
    ("topology.numa_nodes[0].cpus", 1024),
    ("topology.weak[0].why", 1024),
]
SENTENCES = {"agent_version", "driver_version", "cuda_version", "why"}


def whole() -> pb.NodeReport:
    """A report in which every message occurs."""
    message = rich()
    message.topology.rdma_cgroup.devices["mlx5_0"].hca_object = 1
    report_bounds.check(message)
    return message


def put(message: Any, field: str, value: Any) -> None:
    *way, last = field.replace("]", "").replace("[", ".").split(".")
    for name in way:
        if hasattr(message, "DESCRIPTOR"):
            message = getattr(message, name)
        else:
            message = message[int(name) if name.isdecimal() else name]
    if hasattr(message, "DESCRIPTOR"):
        setattr(message, last, value)
    else:
        message[int(last) if last.isdecimal() else last] = value


def refusal(field: str, value: Any) -> str:
    message = whole()
    put(message, field, value)
    return checked(message)


def checked(message: pb.NodeReport) -> str:
    """Why it is refused; empty: it is not."""
    try:
        report_bounds.check(message)
    except MalformedReport as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("field", "least", "most"), NUMBERS)
def test_numbers(field: str, least: int | None, most: int | None) -> None:
    inner = field.rpartition(".")[0] if field.startswith("topology.weak") else field
    for bound, step in ((least, -1), (most, 1)):
        if bound is not None:
            assert refusal(field, bound) == ""
            assert refusal(field, bound + step).startswith(f"{inner}: {bound + step} is not from ")
    if most is None:
        assert refusal(field, INT64) == ""
    if least is None:
        assert refusal(field, 0) == ""


@pytest.mark.parametrize("field", RATES)
def test_rates(field: str) -> None:
    for good in (0.0, 400.0, 1e9):
        assert refusal(field, good) == ""
    for bad in (-0.5, 1.01e9, float("inf"), float("-inf"), float("nan")):
        assert refusal(field, bad).startswith(field.partition(".gb_per_s")[0])


@pytest.mark.parametrize(("field", "most", "entry"), LISTS)
def test_lists(field: str, most: int, entry: Callable[[int], Any]) -> None:
    for count, says in (
        (most, ""),
        (most + 1, f"{field}: {most + 1} entries; at most {most} are accepted"),
    ):
        message = whole()
        if field in ("topology.gpus", "topology.hcas"):
            message.topology.CopyFrom(pb.Topology())
        found: Any = message
        for name in field.replace("]", "").replace("[", ".").split("."):
            found = found[int(name)] if name.isdecimal() else getattr(found, name)
        del found[:]
        found.extend(map(entry, range(count)))
        assert checked(message) == says


@pytest.mark.parametrize(
    ("make", "field", "most"),
    [
        (lambda m: m.topology.rdma_cgroup.devices, "topology.rdma_cgroup.devices", 1024),
        (lambda m: m.grants[0].limits, "grants[0].limits", 64),
    ],
)
def test_maps(make: Callable[[pb.NodeReport], Any], field: str, most: int) -> None:
    message = whole()
    entries = make(message)
    entries.clear()
    for number in range(most + 1):
        if "limits" in field:
            entries[f"n{number}"] = 1
        else:
            entries[f"n{number}"].hca_handle = 1
        if number == most - 1:
            report_bounds.check(message)
    with pytest.raises(MalformedReport) as refused:
        report_bounds.check(message)
    assert str(refused.value) == f"{field}: {most + 1} entries; at most {most} are accepted"
    entries.clear()
    for name in ("n" * 254, "a\nb"):
        if "limits" in field:
            entries[name] = 1
        else:
            entries[name].hca_handle = 1
        with pytest.raises(MalformedReport) as refused:
            report_bounds.check(message)
        assert str(refused.value).startswith(f"{field}: ")
        entries.clear()


@pytest.mark.parametrize(("field", "most"), TEXTS)
def test_texts(field: str, most: int) -> None:
    named = field.partition(".device_ids[")[0] + ".device_ids" if "device_ids[" in field else field
    assert refusal(field, "x" * most) == ""
    long = refusal(field, "x" * (most + 1))
    assert long.startswith((f"{named}: ", field.rpartition(".")[0] + ": "))
    if field.rpartition(".")[2] in SENTENCES:
        message = whole()
        put(message, field, "a\x1b[2Jb")
        report_bounds.check(message)
        shown = str(message)
        assert "\\033" not in shown
        assert "a" in shown
        assert refusal(field, "\n" * (most + 1)) != ""
    else:
        assert refusal(field, "a\x1b[2Jb").startswith(f"{named}: ")


@pytest.mark.parametrize("pci", ["0000:07:00.0", "07:00.0", "7", "00000000:AF:00.1f", "", "f.0"])
def test_pci_addresses(pci: str) -> None:
    assert refusal(f"{GPU}.pci", pci) == ""
    assert refusal(f"{HCA}.pci", pci) == ""


@pytest.mark.parametrize(
    "pci", ["0:0:0:0", "0000:07:00.0x", "g", ".0", "123456789", "0:12345", "١"]
)
def test_what_is_no_pci_address(pci: str) -> None:
    assert refusal(f"{GPU}.pci", pci).startswith(f"{GPU}.pci: ")
    assert refusal(f"{HCA}.pci", pci).startswith(f"{HCA}.pci: ")


@pytest.mark.parametrize("field", ["uuid", "profile"])
def test_a_slice_without_a_name(field: str) -> None:
    assert refusal(f"{SLICE}.{field}", "") == f"{SLICE}: a slice needs a uuid and a profile"


@pytest.mark.parametrize("field", [f"{GPU}.uuid", f"{HCA}.name"])
def test_a_device_without_a_name(field: str) -> None:
    assert refusal(field, "").endswith(": '' is not the name of a device")


def test_names_of_nics_differ() -> None:
    assert refusal("topology.hcas[1].name", "mlx5_0") == "topology.hcas: two are called mlx5_0"


def test_every_number_of_a_report_has_a_bound_here() -> None:
    """A new field of the message is a new row above; `generation`, `topology_of`, `index` and the members of lists are
    no amounts."""
    assert limits.GPUS == 62
    named = {field.rpartition(".")[2].partition("[")[0] for field, *_ in NUMBERS}
    named |= {field.rpartition(".")[2].partition("[")[0] for field in RATES}
    found = set()
    for kind in ("Gpu", "Slice", "Hca", "RdmaLimit", "RdmaUse", "MemoryOver", "NumaNode", "Weak"):
        for each in pb.DESCRIPTOR.message_types_by_name[kind].fields:
            if each.cpp_type not in (each.CPPTYPE_STRING, each.CPPTYPE_BOOL, each.CPPTYPE_MESSAGE):
                found.add(each.name)
    assert found - named == {"index"}
