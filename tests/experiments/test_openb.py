"""The placement benchmark's own arithmetic, on a trace of a few lines (the public one is not here)."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import openb
from tests.benchmarks.openb import Ask

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{i},32000,65536,{gpus},{model}\n"
    for i, (gpus, model) in enumerate([(8, "G2"), (8, "T4"), (4, "G2"), (2, "T4")])
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    + "".join(
        f"p{i},1000,1024,{gpus},{milli},{spec},LS,Running,0,0,0\n"
        for i, (gpus, milli, spec) in enumerate(
            [
                (1, 1000, ""),
                (2, 1000, ""),
                (1, 500, ""),
                (1, 300, "T4"),
                (4, 1000, "G2|T4"),
                (0, 0, ""),
            ]
        )
    )
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    (tmp_path / "published_by_policy.csv").write_text(
        "workload,policy,arrived_gpu_pct,alloc_gpu_pct_mean\ndefault,FGD,100,95.2\ndefault,FGD,130,95.4\n"
    )
    return tmp_path


def test_fragments_are_what_a_typical_pod_could_not_use() -> None:
    """Worked by hand: half the pods want 500 thousandths, half want two whole GPUs."""
    kinds = [(Ask(1000, 0, 1, 500, ()), 0.5), (Ask(1000, 0, 2, 1000, ()), 0.5)]
    cpu = np.array([8000.0, 8000.0, 500.0])
    gpu = np.zeros((3, 8))
    gpu[0, :2] = 400, 1000  # the first kind can't use 400, the second nothing of 1400
    gpu[1, :2] = 1000, 1000  # both use all
    gpu[2, :1] = 1000  # no processor: nobody can use it
    found = openb.fragments(cpu, gpu, np.array(["", "", ""]), kinds)
    assert found.tolist() == [0.5 * 400 + 0.5 * 1400, 0, 1000]


def test_arrivals_are_130_percent(trace: Path) -> None:
    line = openb.arrivals(openb.read_asks(trace, "default"), 22_000, random.Random(1))
    asked = sum(ask.demand for ask in line)
    assert 28_600 - 4000 <= asked <= 28_600


@pytest.mark.parametrize("whole", [False, True])
def test_policies_and_the_core_fill_the_cluster(trace: Path, whole: bool) -> None:
    table = openb.measure(trace, "default", 1, whole=whole)
    names = list(table.columns[0].cells)
    assert "Lockstep" in names
    for column in (1, 2):
        for share in table.columns[column].cells:
            assert 50 < float(str(share)) <= 100
    assert ("95.2 / 95.4" in table.columns[3].cells) == (not whole)


def test_the_trace_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["openb", "--data", "/no/such"])
    assert openb.main() == 2
    assert "must name the folder" in capsys.readouterr().err
