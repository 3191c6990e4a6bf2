"""The JSON of a topology: every field under its published name, with its own value."""

import json
from dataclasses import fields
from typing import Any

import pytest

from protos.topology import Gpu, Hca, NodeTopology, NumaNode, RdmaLimit, Slice, Weak
from protos.topology_json import to_json

# Fields that are shown in another form, or whose value another field has already.
ELSEWHERE = {
    NodeTopology: {
        "gpus", "hcas", "numa_nodes", "weak",  # lists of objects
        "rdma_cgroup", "rdma_settable", "rdma_default",  # inside "rdma_cgroup"
        "bandwidth",  # with its unit in the name
    },
    Gpu: {"slices"},
    Hca: set[str](),
    Slice: set[str](),
}  # fmt: skip


def distinct(kind: type, **given: object) -> Any:
    """An object in which no two fields of one type have the same value."""
    values: dict[str, object] = {}
    for number, field in enumerate(fields(kind), 1):
        made = {"str": f"{field.name}!", "int": number, "float": number + 0.5, "bool": True}
        if str(getattr(field.type, "__name__", field.type)) in made:
            values[field.name] = made[str(getattr(field.type, "__name__", field.type))]
    return kind(**{**values, **given})


PART = distinct(Slice)
GPU = distinct(Gpu, slices=(PART,), mig=False)
NIC = distinct(Hca)
WHOLE = distinct(
    NodeTopology,
    gpus=(GPU, Gpu(1, "GPU-b", "A", 80 << 30, "0000:0f:00.0", healthy=False, why="GPU is lost")),
    hcas=(NIC,),
    links=(("X", "NV12", "PXB"), ("NV12", "X", "SYS"), ("PXB", "SYS", "X")),
    islands=((0, 1),),
    numa_nodes=(NumaNode(3, "0-7"),),
    rdma_cgroup=(("mlx5_4", RdmaLimit(hca_handle=2)), ("mlx5_5", RdmaLimit(0, 0))),
    rdma_settable=True,
    rdma_default=RdmaLimit(hca_object=9),
    bandwidth=((0.0, 300.0), (300.0, 0.0)),
    weak=(Weak(0, 1, "2 of 12 links"), Weak(1, 1, "too hot")),
    pcie_switches=((0,), (1,)),
)
WRITTEN = json.loads(json.dumps(to_json("n1", WHOLE)))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (WHOLE, WRITTEN),
        (GPU, WRITTEN["gpus"][0]),
        (PART, WRITTEN["gpus"][0]["slices"][0]),
        (NIC, WRITTEN["hcas"][0]),
    ],
    ids=["node", "GPU", "slice", "NIC"],
)
def test_every_field_is_there(value: Any, written: dict[str, object]) -> None:
    for field in fields(value):
        if field.name not in ELSEWHERE[type(value)]:
            plain = json.loads(json.dumps(getattr(value, field.name)))
            assert written[field.name] == plain, field.name


def test_what_is_written_in_another_form() -> None:
    assert WRITTEN["node"] == "n1"
    assert [gpu["why"] for gpu in WRITTEN["gpus"]] == ["why!", "GPU is lost"]
    assert [gpu["healthy"] for gpu in WRITTEN["gpus"]] == [True, False]
    assert WRITTEN["numa_nodes"] == [{"id": 3, "cpus": "0-7"}]
    assert WRITTEN["weak"] == [
        {"gpus": [0, 1], "why": "2 of 12 links"},
        {"gpus": [1], "why": "too hot"},
    ]
    assert WRITTEN["bandwidth_gb_per_s"] == [[0.0, 300.0], [300.0, 0.0]]
    assert WRITTEN["rdma_cgroup"] == {
        "available": True,
        "settable": True,
        "default": {"hca_handle": "max", "hca_object": 9},
        "devices": {
            "mlx5_4": {"hca_handle": 2, "hca_object": "max"},
            "mlx5_5": {"hca_handle": 0, "hca_object": 0},
        },
    }


def test_an_empty_machine() -> None:
    empty = to_json("n1", NodeTopology())
    assert empty["gpus"] == empty["hcas"] == empty["weak"] == []
    assert empty["pcie_source"] == "/sys"
    assert empty["rdma_cgroup"] == {
        "available": False,
        "settable": False,
        "default": {"hca_handle": "max", "hca_object": "max"},
        "devices": {},
    }


def test_who_may_use_a_nic() -> None:
    alone = NodeTopology(hcas=(Hca("mlx5_4", "0000:0c:00.0", 3, "InfiniBand", 200.0),))
    assert to_json("n1", alone)["hcas"][0]["pods"] == "any pod"  # type: ignore[index]
