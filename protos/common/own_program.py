"""Commands that run a module of this repository in a process of its own."""

import sys
from pathlib import Path

_FOLDER = Path(__file__).parents[2]  # contains agent, central and protos
# The wheel keeps them in a folder that only its own package adds to sys.path: see daemonset/lockstep_scheduler.
_BY_WHEEL = _FOLDER.parts[-2:] == ("lockstep_scheduler", "packages")


def command(module: str) -> tuple[str, ...]:
    """Returns the command that runs the module with this Python: from a checkout, or from an installed wheel."""
    runner = ("lockstep_scheduler.run",) if _BY_WHEEL else ()
    return (sys.executable, "-m", *runner, module)
