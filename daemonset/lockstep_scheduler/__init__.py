"""Lockstep's programs below one name.

The repository's packages have names that others use, too: agent, central, protos. The wheel holds them in the folder
`packages` beside this file, and importing this module puts that folder first in sys.path. So site-packages has one
package of ours, and the programs import their modules as in a checkout. Design: docs/design/installation.md
"""

import sys
from pathlib import Path

PACKAGES = Path(__file__).parent / "packages"
if (
    PACKAGES.is_dir() and str(PACKAGES) not in sys.path
):  # in a checkout they are in sys.path already
    sys.path.insert(0, str(PACKAGES))


def agent() -> int:
    """Runs lockstep-agent."""
    from agent.__main__ import main

    return main()


def central() -> int:
    """Runs lockstep and kubectl-lockstep."""
    from central.__main__ import main

    return main()


def complete() -> int:
    """Runs kubectl_complete-lockstep."""
    from central.cli.main import complete

    return complete()
