"""Every field of an agent's report, with hostile values: refused with the field's name, or harmless to another tenant's
gang; and the reports of the node as it is are believed again."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from google.protobuf.message import DecodeError

from central.server.grpc import report_bounds
from central.server.grpc.agent_service import _fact
from central.server.grpc.report_bounds import MalformedReport
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from tests.central.poison.by_field import message_walk
from tests.central.poison.test_reports import report
from tests.central.poison.world import CYCLE_S, READ_S, World
from tests.own_time import own_time

TOGETHER = 20
SENTENCE_MOST = 2000  # characters


def rich() -> pb.NodeReport:
    """Every message of a report has a field that is set."""
    message = report(gpus=4, hcas=2)
    message.topology.gpus[0].slices.add(uuid="MIG-1", profile="1g.10gb", memory_bytes=10 << 30)
    message.topology.islands.add(gpus=[0, 1])
    message.topology.pcie_switches.add(gpus=[0, 1])
    message.topology.numa_nodes.add()
    message.topology.weak.add(a=0, b=1)
    for _ in range(4):
        message.topology.bandwidth.add(gb_per_s=[1.0] * 4)
    grant = message.grants.add(pod="p0", namespace="ns", container="c", resource=GPU)
    grant.device_ids.append("GPU-0")
    grant.limits["share"] = 5
    message.topology.rdma_cgroup.default.hca_handle = 3
    message.rdma_use.add(current=pb.RdmaLimit(hca_handle=1), limit=pb.RdmaLimit(hca_handle=2))
    message.memory_over.add(used=2, cap=1)
    message.gpu_use.add(utilization=0.5, memory=1)
    claim = message.prepared.add(namespace="team", name="c", uid="u")
    claim.devices.add(request="main", device="gpu-0")
    return message


def changed() -> Iterator[tuple[str, bytes]]:
    """Each with a generation of its own: of two reports with one number the second is not read."""
    generations = count(2)

    def make() -> pb.NodeReport:
        whole = rich()
        whole.generation = next(generations)
        return whole

    for one in message_walk.changed(make):
        yield one.where, one.data


def decoded(data: bytes, where: str) -> tuple[Any, str]:
    """As the service does: the fact, or why there is none."""
    fact, why = None, ""
    with own_time() as spent:
        try:
            message = pb.NodeReport.FromString(data)
            report_bounds.check(message)
            fact = _fact(message, None)
        except MalformedReport as error:
            why = str(error)
        except DecodeError:
            why = "no message"
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
    assert spent.seconds < READ_S * 3, where
    return fact, why


def test_every_field_of_a_report() -> None:
    world, together, seen = World(), list[Any](), 0
    whole = decoded(rich().SerializeToString(), "rich")[0]
    assert whole is not None
    for where, data in changed():
        fact, why = decoded(data, where)
        assert why.isprintable(), f"{where}: {why!r}"
        assert len(why) < SENTENCE_MOST, where
        seen += 1
        if fact is not None:
            together.append((where, fact))
        if len(together) == TOGETHER:
            _cycle(world, together)
            together.clear()
    _cycle(world, [*together, ("as it is", whole)])
    assert seen > 500


def _cycle(world: World, found: list[tuple[str, Any]]) -> None:
    where = f"{found[0][0]} to {found[-1][0]}"
    _, spent_s = world.cycle(*(fact for _, fact in found))
    assert spent_s < CYCLE_S * 2, where
    failed = list(world.scheduler.quarantine.set_asides.values())
    assert not failed, f"{where}: {failed[0].why}"


def test_the_rich_report_has_every_kind_of_message() -> None:
    named = {part.DESCRIPTOR.name for part in message_walk.messages(rich())}
    assert named >= message_walk.kinds_below(pb.NodeReport.DESCRIPTOR)
