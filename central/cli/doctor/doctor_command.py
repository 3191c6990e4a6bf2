"""`lockstep doctor`: one line for each check, what is wrong and what to do. Reads with the caller's own rights.

Design: docs/design/command-line.md
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

from central.cli import exit_codes, output_format, terminal_table
from central.cli.doctor import bundle, checks, installation
from central.cli.exit_codes import CannotDo
from central.cli.user_client import user_client
from central.kube.transport.connection import TooLong
from central.kube.transport.http_client import StatusError
from central.server.version import version
from protos.common.text_fold import hung


def run(args: argparse.Namespace) -> int:
    try:
        with user_client(args) as (client, namespace):
            found = installation.read(
                client, args.scheduler_namespace, namespace, time.time(), version()
            )
            findings = list(checks.run(found))
            lines = [f"{each.level:<5} {each.check:<12} {each.text}" for each in findings]
            if args.bundle:
                bundle.write(Path(args.bundle), client, found, lines)
    except StatusError as error:
        raise CannotDo(f"the API server refuses you: {error}", exit_codes.REFUSED) from error
    except (OSError, TooLong) as error:
        raise CannotDo(f"{args.bundle}: {getattr(error, 'strerror', None) or error}") from error
    if args.output in output_format.WHOLE:
        rows = [asdict(each) for each in findings]
        print(output_format.written({"findings": rows}, args.output), end="")
    else:
        width = terminal_table.width() or 10_000
        print("\n".join(hung(line, width) for line in lines))
    if args.bundle:
        about = "look through it before you attach it to a report; it has names of nodes, queues and gangs"
        print(f"lockstep: wrote {args.bundle}; {about}", file=sys.stderr)
    return exit_codes.FAILED if any(each.level == "fail" for each in findings) else 0
