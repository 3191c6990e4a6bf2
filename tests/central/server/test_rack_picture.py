from io import StringIO
from typing import Literal

from rich.console import Console

from central.server.rack_picture import GpuCell, NodeRow, Rack, draw

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
    racks = [Rack(f"r{at}", (NodeRow("n", (HELD,) * 8),)) for at in range(3)]
    assert [line.count("┌") for line in drawn(80, *racks).splitlines() if "┌" in line] == [3]
    assert [line.count("┌") for line in drawn(60, *racks).splitlines() if "┌" in line] == [2, 1]
    assert all(len(line) <= 60 for line in drawn(60, *racks).splitlines())


def test_colour_only_where_the_terminal_has_it() -> None:
    assert "\x1b[" not in drawn(80, ONE)
    assert "\x1b[" in drawn(80, ONE, colour=True)


def test_more_owners_than_letters() -> None:
    cells = tuple(GpuCell(f"team/{at:03}") for at in range(40))
    assert "#" in drawn(200, Rack("r", (NodeRow("n", cells),)))
