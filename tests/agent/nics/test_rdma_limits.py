"""rdma.max of pods is found, written, read back and restored."""

import json
from pathlib import Path

import pytest

from agent.cgroups import Cgroups
from agent.kubelet import checkpoint
from agent.nics.rdma_limits import RdmaLimitWriter, failures, max_line, parse, write
from agent.node import AgentNode
from agent.resources.device_resource import Refused
from protos.names import RDMA
from protos.topology import Grant, RdmaLimit, RdmaUse
from tests.fakes.rdma import FakeKernel

UID = "0f3a8a52-6a51-4d0c-9f0e-3f9ef5d0a001"
DASHLESS = UID.replace("-", "_")
LAYOUTS = (
    f"kubepods/pod{UID}",
    f"kubepods/burstable/pod{UID}",
    f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{DASHLESS}.slice",
    f"kubepods.slice/kubepods-pod{DASHLESS}.slice",
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{DASHLESS}.slice",
    f"kubelet/kubepods/besteffort/pod{UID}",
)
KEY = ("team", "a", "c0")


def kernel(root: Path, version: int = 2) -> FakeKernel:
    made = FakeKernel(root, version)
    made.plug("mlx5_0")
    made.plug("mlx5_1")
    return made


class Box:
    """One pod with a share of mlx5_1, whose container is about to start."""

    def __init__(self, root: Path, fake: FakeKernel | None, defaults: RdmaLimit) -> None:
        self.fake, self.node = fake, AgentNode("n")
        self.plugins = root / "plugins"
        self.plugins.mkdir(exist_ok=True)
        self.hold(UID, "mlx5_1::3")
        cgroups = Cgroups(fake.root, fake) if fake else None
        self.limits = RdmaLimitWriter(self.node, cgroups, self.plugins, defaults)

    def hold(self, uid: str, *ids: str, parts: bool = True) -> None:
        entry = {"PodUID": uid, "ContainerName": "c0", "ResourceName": RDMA}
        devices: object = {"0": list(ids)} if parts else list(ids)
        data = {"PodDeviceEntries": [{**entry, "DeviceIDs": devices, "AllocResp": ""}]}
        (self.plugins / checkpoint.NAME).write_text(json.dumps({"Data": data, "Checksum": 1}))
        self.node.set_grants((Grant("team", "a", "c0", RDMA, ids),))

    def wish(self, **limits: int) -> None:
        told = tuple(sorted(limits.items()))
        self.node.set_intents((Grant("team", "a", "c0", RDMA, ("mlx5_1",), told),), 1)

    def start(self, *ids: str) -> None:
        self.limits.pre_start(ids or ("mlx5_1::3",), KEY)


def limits_of(folder: Path) -> dict[str, RdmaLimit]:
    return parse((folder / "rdma.max").read_text())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", [1, 2])
def test_every_layout_of_both_versions(tmp_path: Path, version: int, layout: str) -> None:
    fake = kernel(tmp_path / "cgroup", version)
    folder = fake.pod(layout)
    box = Box(tmp_path, fake, RdmaLimit(64, 1000))
    box.start()
    assert limits_of(folder) == {"mlx5_0": RdmaLimit(), "mlx5_1": RdmaLimit(64, 1000)}
    assert all(text.count("\n") == 0 for _, text in fake.writes)


def test_the_rdma_folder_is_created_in_v1(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup", 1)
    fake.pod(LAYOUTS[1], "memory")
    Box(tmp_path, fake, RdmaLimit(2, -1)).start()
    assert limits_of(fake.base / LAYOUTS[1])["mlx5_1"] == RdmaLimit(2, -1)


def test_a_requested_limit_overrides_the_default(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    folder = fake.pod(LAYOUTS[0])
    box = Box(tmp_path, fake, RdmaLimit(64, 1000))
    box.wish(hca_handle=2)
    box.start()
    assert limits_of(folder)["mlx5_1"] == RdmaLimit(2, 1000)


def test_misread_writes_are_avoided_or_detected(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    fake.write(fake.root / "cgroup.subtree_control", "+rdma")
    folder = fake.pod("p")
    file = folder / "rdma.max"
    for text, want in (
        ("mlx5_0 hca_handle=11\nmlx5_1 hca_handle=13", RdmaLimit(13, -1)),
        ("mlx5_0 hca_handle=010 hca_object=0x10", RdmaLimit(8, 16)),
        ("mlx5_0 hca_handle=", RdmaLimit(-1, 16)),
    ):
        fake.write(file, text)  # the kernel accepts it
        assert limits_of(folder) == {"mlx5_0": want, "mlx5_1": RdmaLimit()}
    for limit in (RdmaLimit(10, 0), RdmaLimit(-1, 7), RdmaLimit(2**31 - 2, -1)):
        write(fake, folder, "mlx5_1", limit)
        assert limits_of(folder)["mlx5_1"] == limit
    with pytest.raises(Refused, match=r"could not write the limit of mlx5_9 to .*: No such device"):
        write(fake, folder, "mlx5_9", RdmaLimit(1, 1))
    with pytest.raises(ValueError, match="no limit for"):
        max_line("mlx5_0\nmlx5_1", RdmaLimit(1, 1))
    with pytest.raises(ValueError, match="no limit for"):
        max_line("mlx5_0", RdmaLimit(2**31, 1))
    fake.deaf = True
    with pytest.raises(Refused, match=r"rdma.max has .* for mlx5_1 after"):
        write(fake, folder, "mlx5_1", RdmaLimit(5, 5))


@pytest.mark.parametrize("wish", [True, False])
def test_a_requested_limit_that_cant_be_set_stops_the_container_and_a_default_does_not(
    tmp_path: Path, wish: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def tell(box: Box, sentence: str) -> None:
        if wish:
            box.wish(hca_handle=8)
            with pytest.raises(Refused, match=sentence):
                box.start()
        else:
            box.start()
            assert "could not set the default RDMA limits on mlx5_1" in caplog.text

    bare = tmp_path / "bare"
    bare.mkdir()
    tell(Box(tmp_path, None, RdmaLimit(5, 5)), "the agent can.t write cgroups")
    box = Box(tmp_path, None, RdmaLimit(5, 5))
    box.limits = RdmaLimitWriter(box.node, Cgroups(bare), box.plugins, RdmaLimit(5, 5))
    tell(box, "the kernel has no rdma cgroup controller")
    fake = kernel(tmp_path / "cgroup")
    tell(Box(tmp_path, fake, RdmaLimit(5, 5)), f"no cgroup for pod {UID} below")
    fake.pod(LAYOUTS[0])
    fake.unplug("mlx5_1")
    tell(Box(tmp_path, fake, RdmaLimit(5, 5)), "could not write the limit of mlx5_1")
    box = Box(tmp_path, fake, RdmaLimit(5, 5))
    box.hold(UID, "mlx5_1::4")
    tell(box, "checkpoint has no container with mlx5_1::3")


def test_a_request_above_the_limit_of_all_pods_is_refused(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    fake.pod(LAYOUTS[1])
    box = Box(tmp_path, fake, RdmaLimit())
    box.wish(hca_handle=8)
    box.start()
    fake.write(fake.root / "kubepods/rdma.max", "mlx5_1 hca_handle=7")
    with pytest.raises(Refused, match=r"8 hca_handle requested, kubepods limits all pods to 7"):
        box.start()
    box.wish(hca_handle=7)
    box.start()


def test_without_request_and_default_nothing_is_written(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    fake.pod(LAYOUTS[1])
    Box(tmp_path, fake, RdmaLimit()).start()
    assert fake.writes == []


def test_limits_are_restored_when_the_nic_comes_back_or_a_request_comes_late(
    tmp_path: Path,
) -> None:
    fake = kernel(tmp_path / "cgroup")
    folder = fake.pod(LAYOUTS[1])
    box = Box(tmp_path, fake, RdmaLimit(64, 1000))
    box.start()
    fake.unplug("mlx5_1")
    assert box.limits.keep() == ()
    fake.plug("mlx5_1")
    assert limits_of(folder)["mlx5_1"] == RdmaLimit()
    fake.use(folder, "mlx5_1", 3, 40)
    used = RdmaUse("team", "a", "mlx5_1", RdmaLimit(3, 40), RdmaLimit(64, 1000))
    assert box.limits.keep() == (used,)
    assert limits_of(folder)["mlx5_1"] == RdmaLimit(64, 1000)
    box.wish(hca_object=5)
    box.limits.keep()
    assert limits_of(folder) == {"mlx5_0": RdmaLimit(), "mlx5_1": RdmaLimit(64, 5)}
    count = len(fake.writes)
    box.limits.keep()
    assert len(fake.writes) == count


def test_ended_pods_and_missing_folders_are_skipped(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    box = Box(tmp_path, fake, RdmaLimit(1, 1))
    assert box.limits.keep() == ()  # no folder
    fake.pod(LAYOUTS[1])
    box.node.set_grants(())
    assert box.limits.keep() == ()
    assert fake.writes == []


def test_allocations_refused_by_the_kernel_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = kernel(tmp_path / "cgroup")
    folder = fake.pod(LAYOUTS[1])
    box = Box(tmp_path, fake, RdmaLimit(1, 1))
    box.start()
    events = folder / "rdma.events"
    events.write_text("mlx5_1 hca_handle.max=5 hca_handle.alloc_fail=3 hca_object.alloc_fail=1 \n")
    assert [use.failures for use in box.limits.keep()] == [4]
    assert (
        caplog.text.count("team/a: the kernel refused RDMA resources at the limit on mlx5_1") == 1
    )
    box.limits.keep()
    assert caplog.text.count("the kernel refused") == 1
    assert failures("") == {}


def test_checkpoints_old_new_and_broken(tmp_path: Path) -> None:
    box = Box(tmp_path, None, RdmaLimit())
    box.hold(UID, "b", "a", parts=False)  # before Kubernetes 1.20
    assert checkpoint.read(box.plugins) == (checkpoint.Entry(UID, "c0", RDMA, ("a", "b")),)
    file = box.plugins / checkpoint.NAME
    file.write_text('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {}}}')
    assert checkpoint.read(box.plugins) == ()
    for text in ("", "[]", '{"Data": {}}', '{"Data": {"PodDeviceEntries": {"PodUID": 1}}}'):
        file.write_text(text)
        with pytest.raises(OSError, match="is not a device checkpoint"):
            checkpoint.read(box.plugins)
    file.unlink()
    assert checkpoint.read(box.plugins) == ()


def test_a_hostile_uid_finds_nothing(tmp_path: Path) -> None:
    fake = kernel(tmp_path / "cgroup")
    assert Cgroups(fake.root, fake).find("../../etc") is None
