"""`make bench`: speed as ratios within one run. Prints a table; -o json for programs.

(a) our binding rate against bare Binding calls, (b) against kube-scheduler, on one real API server;
(c) the core's turns; (d) an idle agent; (e) a start in a large cluster;
(f) 1,000 Jobs of 10 pods. --against COMMIT compares six rows of (c) with an earlier commit, with --core all of them; a
* marks rows more than a tenth slower. --growth prints how processor time grows with each dimension."""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from protos.names import BLOCK, RACK
from tests.benchmarks import (
    against,
    agent,
    binding,
    claims,
    elastic_sizes,
    first_cycles,
    growth,
    jobs,
    plane,
    restart,
    turns,
)
from tests.e2e.cluster.settings import program

Row = tuple[str, float, str, str]  # what, measured, unit, aim


def bindings(rounds: int, say: Callable[[str], None]) -> list[Row]:
    kinds = {"bare": binding.bare, "ours": binding.ours, "kube-scheduler": binding.theirs}
    runs: dict[str, list[binding.Run]] = {kind: [] for kind in kinds}
    say("starting an API server, creating 1,000 nodes")
    with plane.running() as made:
        binding.furnish(made)
        for number in range(rounds):
            for kind, measure in kinds.items():
                say(f"2,000 pods bound: {kind}, round {number + 1} of {rounds}")
                runs[kind].append(measure(made))
    rate = {kind: statistics.median(run.pods_per_s for run in runs[kind]) for kind in kinds}
    cpu = {kind: statistics.median(run.cpu_s for run in runs[kind]) for kind in kinds}
    server = {kind: statistics.median(run.server_cpu_s for run in runs[kind]) for kind in kinds}
    return [
        ("(a) ours / bare Binding calls", rate["ours"] / rate["bare"], "x", ">= 0.8"),
        ("(b) ours / kube-scheduler", rate["ours"] / rate["kube-scheduler"], "x", ">= 4"),
        *((f"    {kind}", rate[kind], "pods/s", "") for kind in kinds),
        ("    processor time of the centre", cpu["ours"], "s", ""),
        ("    processor time of kube-scheduler", cpu["kube-scheduler"], "s", ""),
        *((f"    of API server and etcd, {kind}", server[kind], "s", "") for kind in kinds),
    ]


def decisions(say: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    reference = statistics.median(turns.reference_ms() for _ in range(5))
    for nodes in (1000, 5000):
        for pods in (8, 64, 256):
            say(f"a gang of {pods} on {nodes} nodes")
            decided = turns.one_gang(nodes, pods)
            aim = "<= 1 ms" if nodes == 5000 else ""
            rows.append((f"(c) gang of {pods}, {nodes} nodes, p50", decided.p50_ms, "ms", aim))
    for pods in (8, 256, 4096):
        say(f"a gang of {pods} on 20,000 nodes")
        decided = turns.one_gang(20_000, pods, rounds=10)
        aim = "<= 5 ms" if pods <= 256 else "<= 20 ms"
        rows.append((f"(c) gang of {pods}, 20000 nodes, p50", decided.p50_ms, "ms", aim))
    for gangs, pods, level in ((750, 4, RACK), (3, 1000, "")):
        say(f"a backlog of {gangs} gangs of {pods}")
        rate = turns.backlog(5000, gangs, pods, level)
        rows.append((f"(c) backlog of {gangs} x {pods}, 5000 nodes", rate, "pods/s", ">= 4,000"))
    say("10,000 single pods")
    rate = turns.singles(5000, 10_000)
    rows.append(("(c) 10,000 single pods, 5000 nodes", rate, "pods/s", ">= 5,000"))
    say("1,000 single pods of 40 kinds")
    rate = turns.kinds_at_once(5000, 40, 1000)
    rows.append(("(c) 1,000 single pods of 40 kinds, 5000 nodes", rate, "pods/s", ">= 3,000"))
    rate = turns.kinds_one_by_one(5000, 40, 1000)
    rows.append(("    each in a cycle of its own", rate, "pods/s", ">= 3,000"))
    say("100 changes among 40,000 pods")
    spent = turns.changes(5000, 40_000).p50_ms
    rows.append(("(c) turn with 100 changes, 5000 nodes, 40,000 pods", spent, "ms", "<= 5 ms"))
    for queues in (1, 20):
        say(f"10,000 gangs wait in {queues} queues")
        spent = turns.line(queues, 10_000).p50_ms
        rows.append(
            (
                f"(c) a GPU freed, 10,000 gangs wait in {queues} queue{'s' * (queues > 1)}",
                spent,
                "ms",
                "",
            )
        )
    say("10,000 gangs wait in 1,000 queues of three levels")
    spent = turns.line(1000, 10_000, deep=True).p50_ms
    rows.append(("    in 1,000 queues of three levels", spent, "ms", "<= 50 ms"))
    say("10,000 gangs of 2,000 kinds wait")
    spent = turns.unlike_line(2000, 10_000).p50_ms
    rows.append(("(c) a GPU freed, 10,000 gangs of 2,000 kinds wait", spent, "ms", "<= 20 ms"))
    say("reclaim")
    spent, evicted = turns.claim(turns.full(500), 250, attempts=3)
    assert evicted == 2000, evicted
    rows.append(
        (f"(c) reclaim of {evicted} GPUs for one gang, 500 nodes", spent, "ms", "<= 500 ms")
    )
    spent, _ = turns.claim(turns.full(500), 501)
    rows.append(("(c) no to a gang that is too big, 500 nodes", spent, "ms", "<= 5 ms"))
    spent = turns.too_big(50_000).p50_ms
    rows.append(
        ("(c) no to pods that are too big for any node, 50000 nodes", spent, "ms", "<= 2 ms")
    )
    for level, name in ((RACK, "17 nodes in one rack of 16"), (BLOCK, "400 in one block of 256")):
        spent = turns.too_many(50_000, level).p50_ms
        rows.append((f"(c) no to a gang of {name}, 50000 nodes", spent, "ms", "<= 2 ms"))
    for settled, name in ((True, "no where nobody is less urgent, and a reservation"), (False, "")):
        made = turns.full(500, priority=10)
        if settled:
            turns.settle(made, 1000.0)
        spent, _ = turns.claim(made, 250)
        row = f"(c) {name}" if settled else "    the same in the second cycle after a start"
        rows.append((row, spent, "ms", "<= 5 ms" if settled else ""))
    for name, measure in (
        ("pods of others", elastic_sizes.events),
        ("a free seat", elastic_sizes.growth),
    ):
        say(f"500 elastic Jobs, {name}")
        spent = measure().p50_ms
        row = f"(c) one event ({name}), 500 elastic Jobs of 40, 5000 nodes"
        rows.append((row, spent, "ms", "<= 20 ms"))
        spent = measure(rounds=3, jobs=1000, members=32).p50_ms
        row = f"    the same, 1,000 elastic Jobs of 32: a plan anew ({name})"
        rows.append((row, spent, "ms", "<= 1,000 ms"))
    for gpus, count, aim in ((64, 40, "<= 100 ms"), (2048, 1000, "<= 1,000 ms")):
        say(f"{count} elastic Jobs on {gpus} GPUs, a plan anew by goodput")
        spent = elastic_sizes.goodput(gpus, count).p50_ms
        row = f"(c) a plan anew by goodput, {count:,} elastic Jobs on {gpus:,} GPUs"
        rows.append((row, spent, "ms", aim))
    for name, (case, aim) in claims.CASES.items():
        say(name)
        found = case()
        rows.append((f"(c) {name}: in all", found.total_ms, "ms", aim))
        rows.append(("    first decision after", found.first_ms, "ms", "<= 100 ms"))
        rows.append(("    longest cycle", found.longest_ms, "ms", "<= 1,000 ms"))
    say("the first cycle of 20,000 nodes")
    spent = turns.first_cycle_ms(20_000)
    rows.append(("(c) first cycle of 20000 nodes, with their reports", spent, "ms", "<= 1,200 ms"))
    say("the cycles after a restart")
    spent = first_cycles.longest_ms(5000, 10_000)
    rows.append(
        ("(c) longest cycle after a restart, 5000 nodes, 10,000 gangs", spent, "ms", "<= 1,000 ms")
    )
    rows.append(("    a fixed piece of Python", reference, "ms", ""))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed, as ratios within one run.")
    parser.add_argument("--rounds", type=int, default=3, help="of each binding run (default 3)")
    parser.add_argument("--core", action="store_true", help="only (c): no API server needed")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare six rows of the core with this commit's, in turn: --rounds times each; with --core all rows",
    )
    parser.add_argument(
        "--growth", action="store_true", help="only how time grows with each dimension of the core"
    )
    args = parser.parse_args()
    if args.growth:
        with binding.progress() as say:
            grown = [*growth.grown((), say)]
        show_growth(grown, args)
        return 0
    if args.against:
        with binding.progress() as say:
            command = against.FULL_COMMAND if args.core else against.SHORT_COMMAND
            compared = against.compare(args.against, args.rounds, say, command)
        show_comparison(compared, args)
        return 0
    if not args.core and not program("kube-apiserver").exists():
        print(
            "no Kubernetes built yet: run python -m tests.e2e.cluster build, or use --core",
            file=sys.stderr,
        )
        return 2
    with binding.progress() as say:
        rows = [*([] if args.core else bindings(args.rounds, say)), *decisions(say)]
        if not args.core:
            rows += agent.rows(30.0, say)
            with plane.running() as made:
                rows += restart.rows(made, say)
            rows += jobs.rows(say)
    if args.output == "json":
        found = {what.strip(): {"value": value, "unit": unit} for what, value, unit, _ in rows}
        print(json.dumps(found, indent=1))
        return 0
    table = new_table("WHAT", "MEASURED", "AIM")
    for what, value, unit, aim in rows:
        table.add_row(what, amount(value, unit), aim)
    show(table)
    return 0


def show_comparison(rows: Sequence[against.Compared], args: argparse.Namespace) -> None:
    if args.output == "json":
        names = ("row", "then", "now", "unit", "slower")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
        return
    table = new_table("WHAT", args.against, "NOW", "SLOWER")
    for what, then, now, unit, slower in rows:
        mark = " *" if slower > against.MUCH else "  "
        table.add_row(what, amount(then, unit), amount(now, unit), f"{slower:.2f} x{mark}")
    show(table)


def show_growth(rows: Sequence[growth.Grown], args: argparse.Namespace) -> None:
    if args.output == "json":
        print(json.dumps([row._asdict() | {"exponent": row.exponent} for row in rows], indent=1))
        return
    table = new_table("WHAT", "SIZES", "MS", "EXPONENT")
    for row in rows:
        sizes = ", ".join(f"{size:,}" for size in row.sizes)
        spent = ", ".join(f"{each:,.{0 if each >= 100 else 2}f}" for each in row.spent_ms)
        mark = " *" if row.exponent > growth.MOST else "  "
        table.add_row(row.dimension, sizes, spent, f"{row.exponent:.2f}{mark}")
    show(table)


def new_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("WHAT", "AIM") else "right")
    return table


def amount(value: float, unit: str) -> str:
    return f"{value:,.{0 if value >= 100 else 2}f} {unit}"


def show(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    sys.exit(main())
