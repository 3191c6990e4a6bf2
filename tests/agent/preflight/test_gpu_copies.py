"""Copies between GPUs as a process, on a fake CUDA library with faults."""

import os
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.preflight.copy_process import CopyOutcome, CopyProcess, outcome
from tests.fakes.cuda.cuda_build import cuda_library

UUIDS = [f"GPU-{number}" for number in range(4)]
PASSED = CopyOutcome({})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda_library(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def faults(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "faults"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(built))
    monkeypatch.setenv("LOCKSTEP_FAKE_CUDA", str(file))
    return file


def run(wait_s: float = 60.0) -> CopyOutcome:
    return CopyProcess().run(UUIDS, wait_s, lambda: False)


def test_all_is_well(faults: Path) -> None:
    assert run() == PASSED


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("corrupt 1 1", {"GPU-1": "a copy brought other bytes"}),
        ("corrupt 1 3", dict.fromkeys(("GPU-1", "GPU-3"), "a copy brought other bytes")),
        ("corrupt 0 2\ncorrupt 1 2\ncorrupt 2 3", {"GPU-2": "a copy brought other bytes"}),
        ("copy 0 3 719\ncopy 1 3 719\ncopy 2 3 719", {"GPU-3": "cuMemcpyPeer: CUDA_ERROR_719"}),
        ("retain 2 46", {"GPU-2": "cuDevicePrimaryCtxRetain: CUDA_ERROR_46"}),
        ("missing 3", {"GPU-3": "CUDA does not list the GPU"}),
        ("init 802", dict.fromkeys(UUIDS, "cuInit: CUDA_ERROR_802")),
    ],
)
def test_faults(faults: Path, fault: str, failed: dict[str, str]) -> None:
    faults.write_text(fault + "\n")
    assert run() == CopyOutcome(failed)


def test_a_gpu_before_the_end_of_the_list(faults: Path) -> None:
    """The driver ends the list there, so the ones behind it cannot be told apart from it."""
    faults.write_text("missing 1\n")
    assert set(run().failed) == {"GPU-1", "GPU-2", "GPU-3"}


def test_no_cuda_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = run()
    assert found.failed == {}
    assert "libcuda.so.1" in found.unable


def test_a_driver_that_cannot_be_used_here_is_no_failure(faults: Path) -> None:
    faults.write_text("init 100\n")
    assert run() == CopyOutcome({}, unable="cuInit: CUDA_ERROR_100")


def test_a_copy_that_hangs_speaks_against_its_gpus(faults: Path) -> None:
    faults.write_text("hang 0 2\n")
    for wait_s in (2, 20, 120):  # on a busy machine the program has not come so far after 2 s
        found = run(wait_s=wait_s)
        if len(found.failed) == 2:
            break
    assert found.failed == dict.fromkeys(
        ("GPU-0", "GPU-2"), f"a copy did not end within {wait_s} s"
    )


def test_a_check_is_ended_when_somebody_wants_a_gpu(faults: Path) -> None:
    faults.write_text("hang 0 0\n")
    asked = count()
    found = CopyProcess().run(UUIDS, 60.0, lambda: next(asked) > 5)
    assert found == CopyOutcome({}, cancelled=True)


def test_a_program_that_breaks_off(faults: Path) -> None:
    faults.write_text("")
    program = (sys.executable, "-c", "print('try 1 2', flush=True); import os; os.abort()")
    found = CopyProcess(program).run(UUIDS, 30.0, lambda: False)
    assert set(found.failed) == {"GPU-1", "GPU-2"}
    assert "ended with -6" in found.failed["GPU-1"]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print('try 0 1', flush=True); import os; os.kill(os.getpid(), 9)", "memory limit"),
        ("raise SystemExit(3)", "ended with 3 before it began"),
    ],
)
def test_a_process_that_ends_for_other_reasons_speaks_against_no_gpu(
    program: str, why: str
) -> None:
    found = CopyProcess((sys.executable, "-c", program)).run(UUIDS, 30.0, lambda: False)
    assert found.failed == {}
    assert why in found.unable


def test_no_process_is_left(faults: Path) -> None:
    faults.write_text("hang 0 0\n")
    run(wait_s=0.5)
    mine = str(faults)
    here = [file for file in Path("/proc").glob("[0-9]*/environ") if mine in _text(file)]
    left = {int(file.parent.name) for file in here} - {os.getpid()}
    assert left == set()


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@given(st.text(max_size=300))
def test_rubbish_of_the_program_is_no_pass(text: str) -> None:
    found = outcome(text, UUIDS, "broken off")
    lines = {line.split(" ")[0] for line in text.splitlines()}
    assert found.failed or found.unable or lines & {"done", "unable"}
    assert found.failed.keys() <= set(UUIDS)
