"""`lockstep migrate check`: reads a cluster with the user's own rights, changes nothing, and says what a migration
meets."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from central.cli import exit_codes, output_format, terminal_table
from central.cli.migrate import from_kube_scheduler, from_kueue, from_volcano
from central.cli.migrate.cluster_objects import ClusterObjects, read_cluster
from central.cli.migrate.finding import Finding
from central.cli.user_client import user_client
from protos.common.text_fold import hung

SOURCES: dict[str, Callable[[ClusterObjects], Iterable[Finding]]] = {
    "volcano": from_volcano.findings,
    "kueue": from_kueue.findings,
    "kube-scheduler": from_kube_scheduler.findings,
}
TITLES = {
    "stop": "Remove before Lockstep starts:",
    "change": "Works differently, or needs an edit:",
    "note": "For your information:",
}


def run(args: argparse.Namespace) -> int:
    with user_client(args) as (client, _):
        cluster = read_cluster(client)
    found = {name: list(SOURCES[name](cluster)) for name in args.source or SOURCES}
    if args.output in output_format.WHOLE:
        rows = {name: [asdict(each) for each in several] for name, several in found.items()}
        whole = {"findings": rows, "unread": list(cluster.unread)}
        print(output_format.written(whole, args.output), end="")
    else:
        print("\n".join(_text(found)))
    for sentence in cluster.unread:
        print(f"lockstep: {sentence}", file=sys.stderr)
    stops = any(each.level == "stop" for several in found.values() for each in several)
    return exit_codes.FAILED if stops else 0


def _text(found: dict[str, list[Finding]]) -> Iterator[str]:
    several = [each for findings in found.values() for each in findings]
    if not several:
        yield f"Nothing of {', '.join(found)} was found."
    for level, title in TITLES.items():
        here = [each for each in several if each.level == level]
        if here:
            yield title
            width = terminal_table.width() or 10_000
            yield from (hung(f"  {each.about}: {each.text}", width) for each in here)
