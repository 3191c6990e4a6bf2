from io import StringIO
from typing import Literal

from rich.console import Console

from central.server.rack_picture import GpuCell, NodeRow, Rack, draw, racks
from protos.stubs import fleet_pb2 as pb

FREE, HELD, PLANNED = GpuCell(), GpuCell("team/a"), GpuCell("team/b", confirmed=False)


def drawn(width: int, *racks: Rack, colour: bool = False) -> str:
    out = StringIO()
    system: Literal["standard"] | None = "standard" if colour else None
    draw(Console(file=out, width=width, force_terminal=colour, color_system=system), racks)
    return out.getvalue()


ONE = Rack(
    "rack r1", (NodeRow("n1", (HELD, FREE)), NodeRow("node-2", (PLANNED, GpuCell(healthy=False))))
)


def test_one_sign_per_gpu_and_a_legend() -> None:
    assert drawn(80, ONE) == (
        "┌ rack r1 ─────┐\n"
        "│ n1      A ·  │\n"
        "│ node-2  B?x  │\n"
        "└──────────────┘\n"
        "A team/a   B team/b   · free   x unhealthy   ? planned, not confirmed\n"
    )


def test_racks_stand_side_by_side_as_wide_as_the_terminal_is() -> None:
    found = [Rack(f"r{at}", (NodeRow("n", (HELD,) * 8),)) for at in range(3)]
    assert [line.count("┌") for line in drawn(80, *found).splitlines() if "┌" in line] == [3]
    assert [line.count("┌") for line in drawn(60, *found).splitlines() if "┌" in line] == [2, 1]
    assert all(len(line) <= 60 for line in drawn(60, *found).splitlines())


def test_colour_only_where_the_terminal_has_it() -> None:
    assert "\x1b[" not in drawn(80, ONE)
    assert "\x1b[" in drawn(80, ONE, colour=True)


def test_more_owners_than_letters() -> None:
    cells = tuple(GpuCell(f"team/{at:03}") for at in range(40))
    assert "#" in drawn(200, Rack("r", (NodeRow("n", cells),)))


def test_a_shared_gpu_has_all_its_owners() -> None:
    holders = [
        pb.Holder(namespace="ns", pod=pod, gpus=[1, 9], confirmed=pod != "c") for pod in "dcbab"
    ]
    node = pb.NodeView(name="n1", count=pb.GpuCount(gpus=2), holders=holders[-2:])
    other = pb.NodeView(name="n2", count=pb.GpuCount(gpus=2), holders=holders)
    [rack] = racks(pb.TopologyReply(nodes=[node, other]))
    assert rack.nodes[0].cells == (FREE, GpuCell("ns/a, ns/b"))
    assert rack.nodes[1].cells == (FREE, GpuCell("ns/a, ns/b and 2 more", confirmed=False))
