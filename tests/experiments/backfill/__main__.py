"""Days with EASY, conservative backfilling, Slurm's multifactor order and Lockstep, as a table:

python -m tests.experiments.backfill [--days 12] [--times true,wrong,missing] [--queues 0,3]
"""

import argparse

from rich.console import Console
from rich.table import Table

from tests.experiments.backfill import days, lockstep, references

LOCKSTEP = "Lockstep"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.backfill")
    parser.add_argument("--days", type=int, default=12)
    parser.add_argument("--times", default=",".join(days.TIMES))
    parser.add_argument("--queues", default="0,3")
    args = parser.parse_args()
    columns = "RUN TIMES", "QUEUES", "", "mean wait", "p95", "makespan", "GPUs in use"
    table = Table(*columns, f"longest wait, {days.LARGE} GPUs or more", box=None)
    for times in args.times.split(","):
        for queues in map(int, args.queues.split(",")):
            made = [days.generate(seed, times=times, queues=queues) for seed in range(args.days)]
            for name in (*references.POLICIES, LOCKSTEP):
                mean = days.means([figures_of(day, name) for day in made])
                table.add_row(
                    times,
                    str(queues),
                    name,
                    f"{mean.mean_wait_s / 60:.0f} min",
                    f"{mean.p95_wait_s / 60:.0f} min",
                    f"{mean.makespan_s / days.HOUR:.1f} h",
                    f"{100 * mean.use:.1f} %",
                    f"{mean.longest_large_s / days.HOUR:.1f} h",
                )
    Console().print(table)


def figures_of(day: days.Day, name: str) -> days.Figures:
    if name == LOCKSTEP:
        return days.of_waits(day, lockstep.Play(day).run())
    return days.figures(day, references.play(day, references.POLICIES[name]))


if __name__ == "__main__":
    main()
