"""How many examples a property test tries: a quarter of them in `make quick` and `make check`."""

import os

FEWEST = 20
FAST = bool(os.environ.get("LOCKSTEP_FAST"))


def examples(full: int) -> int:
    """`full` in `make test`; in the fast lanes a quarter of it, but not fewer than FEWEST."""
    return min(full, max(FEWEST, full // 4)) if FAST else full
