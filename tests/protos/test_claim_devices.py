"""A device has one name in claims, which leads back to its GPU, and text of strangers makes no path."""

import pytest

from protos import wire
from protos.claim_devices import device_name, is_safe, uuid_of
from protos.stubs import fleet_pb2 as pb
from protos.topology import ClaimDevice, ClaimPlan


@pytest.mark.parametrize(
    ("uuid", "device"),
    [
        ("GPU-8f3c0a11-9d55-4e1c-8b0a-3f1f0f6f7a01", "gpu-8f3c0a11-9d55-4e1c-8b0a-3f1f0f6f7a01"),
        ("MIG-41b35014-cb06-5c0b-90a6-91c4a3d3b8ce", "mig-41b35014-cb06-5c0b-90a6-91c4a3d3b8ce"),
    ],
)
def test_the_name_of_a_device_leads_both_ways(uuid: str, device: str) -> None:
    assert device_name(uuid) == device
    assert uuid_of(device) == uuid


@pytest.mark.parametrize(
    "uuid",
    [
        "",
        "GPU-",
        "GPU-ABC",
        "GPU-a/b",
        "MIG-GPU-8f3c/7/0",
        "gpu-8f3c",
        "GPU-" + "a" * 60,
        "GPU-a\n",
    ],
)
def test_an_odd_uuid_has_no_device(uuid: str) -> None:
    assert device_name(uuid) == ""


@pytest.mark.parametrize("device", ["", "gpu-", "GPU-8f3c", "nic-8f3c", "gpu-8F3C", "gpu-a\n"])
def test_an_odd_device_has_no_uuid(device: str) -> None:
    assert uuid_of(device) == ""


def test_only_names_without_paths_are_safe() -> None:
    assert is_safe("8f3c0a11-9d55-4e1c-8b0a-3f1f0f6f7a01")
    assert is_safe("web.a-0")
    for text in ("", ".", "..", "a..b", "a/b", "-a", "a-", "A", "a\n", "a" * 254):
        assert not is_safe(text)


def test_claims_survive_the_wire() -> None:
    plans = (ClaimPlan("team", "c", "u-1", (ClaimDevice("main", "gpu-a"),)), ClaimPlan("", "", ""))
    assert wire.values(ClaimPlan, wire.messages(pb.ClaimPlan, plans)) == plans
