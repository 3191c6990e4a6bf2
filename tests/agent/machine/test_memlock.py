"""The limit of locked memory, and the warning about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine import host
from agent.machine.survey import survey
from protos import matrix
from tests.fakes import machines
from tests.fakes.nodebox import node_box

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max file size             unlimited            unlimited            bytes
Max locked memory         {soft:<20} {hard:<20} bytes
Max address space         unlimited            unlimited            bytes
"""


def process(proc: Path, pid: int, name: str, soft: str = "8388608", hard: str = "8388608") -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "limits").write_text(LIMITS.format(soft=soft, hard=hard))


def test_the_limit_of_the_container_runtime_is_read(tmp_path: Path) -> None:
    assert host.memlock(tmp_path / "nowhere") == host.UNKNOWN
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "sys").mkdir()
    process(proc, 1, "systemd", "65536")
    process(proc, 700, "containerd-shim", "65536")
    process(proc, 812, "dockerd", "65536")
    process(proc, 900, "containerd", "8388608", "unlimited")
    assert host.memlock(proc) == 8388608
    process(proc, 900, "sshd")  # the runtime has ended, and its pid was reused
    process(proc, 950, "containerd", "unlimited", "unlimited")
    assert host.memlock(proc) == host.UNLIMITED
    (proc / "950/limits").unlink()
    assert host.memlock(proc) == host.UNKNOWN


def test_a_low_limit_is_reported_on_machines_with_nics(caplog: pytest.LogCaptureFixture) -> None:
    made = machines.machine(cards=8)
    low = replace(made, host=replace(made.host, memlock=8 << 20))
    told = matrix.notes(survey(low))
    assert told[0].startswith("the container runtime limits locked memory to 8192 KiB")
    assert f"RDMA:\n\n  {told[0]}\n" in matrix.table(survey(low))
    for enough in (host.UNLIMITED, host.UNKNOWN, 1 << 30):
        assert not matrix.notes(survey(replace(made, host=replace(made.host, memlock=enough))))
    bare = machines.machine()
    assert not matrix.notes(survey(replace(bare, host=replace(bare.host, memlock=1))))
    with node_box(low) as box:
        box.start()
    assert caplog.text.count(told[0]) == 1
    caplog.clear()
    with node_box(low) as box:
        box.configure(rdma_devices=("none",))
        box.start()
    assert told[0] not in caplog.text
