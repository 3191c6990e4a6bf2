"""lockstep-agent run | gpu-setup | topology | capture | migrate."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.machine.facts import Unusable
from protos.common import command_output
from protos.printing import error_lines

if TYPE_CHECKING:
    from agent.settings import Settings

NEED_LINUX = ("run", "gpu-setup", "capture")


def main(arguments: Sequence[str] | None = None) -> int:
    return command_output.run("lockstep-agent", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    # imported here, so that a missing package is one sentence
    from agent import commands
    from agent.flags import parser
    from agent.gpu_setup import command as gpu_setup
    from agent.migrate import migrate_command as migrate
    from agent.settings import settings

    given = parser().parse_args(arguments)
    try:
        if given.command in NEED_LINUX and sys.platform != "linux":
            raise Unusable(f"{given.command} reads /sys and /proc, so it needs Linux")
        if given.command == "topology":
            return commands.topology(given)
        if given.command == "capture":
            return commands.capture(given)
        if given.command == "migrate":
            return migrate.run(given)
        if given.command == "gpu-setup":
            return gpu_setup.run(given)
        return run(settings(given))
    except Unusable as error:
        print(error_lines(f"lockstep-agent: {error}"), file=sys.stderr)
        return 2


def run(chosen: "Settings") -> int:
    # gRPC reads the variable on import. Its own messages are not for users.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from agent.service import Agent  # the other commands do not need gRPC
    from protos.common import logs

    logs.configure(chosen.log_level, chosen.log_format)
    logging.getLogger(__name__).info("%s", chosen)
    agent = Agent(chosen)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.interrupt())
    agent.start()
    agent.wait()
    agent.stop()
    logging.getLogger(__name__).info("stopped")
    # Everything is closed. A normal exit would wait for threads of gRPC or of a hanging driver, and so
    # delay the end of the pod.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
