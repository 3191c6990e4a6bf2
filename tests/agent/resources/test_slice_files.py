"""Device files of MIG slices: the GPU's, and one for each instance, by the driver's minor
numbers."""

from pathlib import Path

import pytest

from agent.machine.survey import survey
from agent.mig import orphans
from agent.resources.device_files import slice_files
from agent.resources.device_resource import DeviceRequest
from agent.resources.slice_allocation import preferred
from protos import slicing
from protos.topology import Gpu, NodeTopology, Slice
from tests.agent.mig.test_slice_discovery import MACHINE

SEEN = survey(MACHINE)
GPU6, GPU7 = SEEN.gpus[6], SEEN.gpus[7]
MINORS = {GPU6.uuid: 4, GPU7.uuid: 5}  # not the index


def by_access(proc: Path, minor: int, gi: int, ci: int, numbers: tuple[int, int]) -> None:
    instance = proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}"
    (instance / f"ci{ci}").mkdir(parents=True)
    for place, number in zip((instance, instance / f"ci{ci}"), numbers, strict=True):
        text = f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        (place / "access").write_text(text)


def by_list(proc: Path, *lines: str) -> None:
    (proc / "driver/nvidia-caps").mkdir(parents=True)
    (proc / "driver/nvidia-caps/mig-minors").write_text("config 1\nmonitor 2\n" + "\n".join(lines))


def devices(root: Path, *names: str) -> Path:
    (root / "nvidia-caps").mkdir(parents=True)
    for name in names:
        (root / name).touch()
    return root


def given(tmp_path: Path, policy: str = "auto", gpu: Gpu = GPU6) -> tuple[str, ...]:
    parts = [(gpu, gpu.slices[0])]
    return slice_files(parts, MINORS, policy, tmp_path / "dev", tmp_path / "proc")


ALL = ("nvidia4", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31")
EXPECTED = tuple(f"/dev/{name}" for name in ("nvidia4", *ALL[3:], "nvidiactl", "nvidia-uvm"))


@pytest.mark.parametrize("listed", [True, False])
def test_its_gpu_and_its_instances(tmp_path: Path, listed: bool) -> None:
    devices(tmp_path / "dev", *ALL)
    if listed:
        by_list(tmp_path / "proc", "gpu4/gi1/access 30", "gpu4/gi1/ci0/access 31")
    else:
        by_access(tmp_path / "proc", 4, 1, 0, (30, 31))
    assert given(tmp_path) == given(tmp_path, "always") == EXPECTED
    assert given(tmp_path, "never") == ()


def test_all_of_its_files_or_none(tmp_path: Path) -> None:
    """The GPU's file alone does not open the slice and might open something else."""
    devices(tmp_path / "dev", *ALL[:4])
    assert given(tmp_path) == ()
    by_access(tmp_path / "proc", 4, 1, 0, (30, 31))
    assert given(tmp_path) == ()
    with pytest.raises(ValueError, match=r"of GPU 6's 3g.20gb \(gi 1, ci 0\) are missing"):
        given(tmp_path, "always")
    assert given(tmp_path, gpu=GPU7) == ()


def test_odd_words_of_the_driver_are_no_number(tmp_path: Path) -> None:
    devices(tmp_path / "dev", *ALL)
    by_access(tmp_path / "proc", 4, 1, 0, (30, 31))
    (tmp_path / "proc/driver/nvidia/capabilities/gpu4/mig/gi1/access").write_text("DeviceFile: x")
    by_list(tmp_path / "proc", "gpu4/gi1/access many", "nonsense")
    assert given(tmp_path) == ()


def test_where_slices_were_is_told_and_read_again() -> None:
    parts = list(slicing.of(SEEN))
    annotation = {orphans.ANNOTATION: orphans.annotation(parts)}
    wanted = {part.uuid for _, part in parts[:2]}
    assert orphans.addresses([{}, annotation, {orphans.ANNOTATION: "nonsense"}], wanted) == {
        part.uuid: (gpu.uuid, part.gi, part.ci) for gpu, part in parts[:2]
    }


def node(*sizes: int) -> NodeTopology:
    """GPUs with these numbers of slices of 5 GB."""
    return NodeTopology(
        tuple(
            Gpu(
                index,
                f"G{index}",
                "",
                0,
                "",
                mig=True,
                slices=tuple(Slice(f"{index}{n}", "1g.5gb", n, 0, 5) for n in range(size)),
            )
            for index, size in enumerate(sizes)
        )
    )


@pytest.mark.parametrize(
    ("sizes", "held", "size", "expected"),
    [
        ((7, 3, 5), (), 1, "1"),  # the GPU with the least left
        ((7, 3, 5), (), 3, "1"),
        ((7, 3, 5), (), 4, "2"),  # all from one
        ((7, 3, 5), (), 6, "0"),
        ((7, 3, 5), (), 8, "01"),  # from two, then where the least is left
        ((7, 3, 5), (), 15, "012"),
        ((7, 7), ("00", "01"), 2, "0"),  # held slices do not count as left
        ((3, 3), (), 4, "01"),
    ],
)
def test_which_gpus_slices_come_from(
    sizes: tuple[int, ...], held: tuple[str, ...], size: int, expected: str
) -> None:
    seen = node(*sizes)
    free = tuple(part.uuid for _, part in slicing.of(seen) if part.uuid not in held)
    chosen = preferred(DeviceRequest(free, (), size), seen, held)
    assert len(set(chosen)) == len(chosen) == size
    assert {each[0] for each in chosen} == set(expected)


def test_must_haves_and_strangers() -> None:
    seen = node(7, 7)
    free = tuple(part.uuid for _, part in slicing.of(seen))
    assert {each[0] for each in preferred(DeviceRequest(free, ("15",), 3), seen, ())} == {"1"}
    assert preferred(DeviceRequest(("x", "y"), (), 1), seen, ()) == ("x",)
    assert preferred(DeviceRequest((), (), 1), seen, ()) == ()
