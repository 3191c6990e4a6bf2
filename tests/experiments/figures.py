"""Tables of what was asked for beside what is measured; a figure that is worse than its line fails the command."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Figures:
    """missed: the figures that are worse than their lines."""

    console: Console
    missed: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)  # of what was asked, and why

    def row(
        self, table: Table, cells: Sequence[str], asked: str, ours: str, *, holds: bool
    ) -> None:
        table.add_row(*cells, asked, ours if holds else f"{ours} (missed)")
        if not holds:
            self.missed.append(f"{table.title}, {cells[0]}: {ours}, asked {asked}")


def interval(values: Sequence[float], unit: str = "") -> str:
    """Mean with its 95 % interval, where there is more than one value."""
    if len(values) == 1:
        return f"{values[0]:.1f}{unit}"
    half = 1.96 * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.1f}{unit} ± {half:.1f}"


def new_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for column in columns:
        table.add_column(column)
    return table
