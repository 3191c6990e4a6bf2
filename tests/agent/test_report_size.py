"""Grants of a kubelet that lists too much, and the limits that agent and scheduler share."""

from dataclasses import replace

from agent import report_size
from agent.machine import plausible
from central.model import limits
from central.server.grpc import report_bounds
from protos import wire
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from protos.topology import Grant

ONE = Grant("team", "pod", "main", GPU, ("GPU-1",))


def message(grants: tuple[Grant, ...]) -> pb.NodeReport:
    return pb.NodeReport(node="n", boot_id="b", grants=wire.to_grants(grants))


def test_agent_and_scheduler_have_the_same_limits() -> None:
    here = (plausible.GPUS, plausible.NICS, plausible.SLICES, plausible.GPU_MEMORY)
    assert here == (limits.GPUS, limits.NICS, limits.SLICES, limits.GPU_MEMORY)
    assert plausible.AMOUNT == limits.NIC_AMOUNT
    assert plausible.NUMA_NODES == report_bounds.NUMA_NODES
    assert (report_size.GRANTS, report_size.DEVICES) == (limits.GRANTS, limits.GRANT_DEVICES)
    assert report_size.NAME == limits.NAME


def test_what_does_not_fit_does_not_take_the_rest_with_it() -> None:
    long = replace(ONE, pod="p" * 254)
    many = replace(ONE, device_ids=tuple(f"GPU-{n}" for n in range(4097)))
    kept, left_out = report_size.fitting((long, ONE, many, replace(ONE, pod="other")))
    assert [each.pod for each in kept] == ["pod", "other"]
    assert left_out == (
        f"pod team/{'p' * 64}: its pod has a name of 254 characters; at most 253",
        f"pod team/pod: 4097 devices of {GPU}; at most 4096",
    )
    report_bounds.check(message(kept))


def test_a_report_stays_below_the_size_that_the_scheduler_takes() -> None:
    grants = tuple(replace(ONE, pod=f"{n:05}" + "\N{GRINNING FACE}" * 100) for n in range(20_000))
    kept, left_out = report_size.fitting(grants)
    assert len(kept) + len(left_out) == 20_000
    assert 0 < message(kept).ByteSize() <= report_size.BYTES
    short = tuple(replace(ONE, pod=str(n), device_ids=("a",)) for n in range(20_000))
    kept, _ = report_size.fitting(short)
    assert 5000 < len(kept) <= report_size.GRANTS
    report_bounds.check(message(kept))
