"""python -m lockstep_scheduler is the command lockstep."""

import sys

from lockstep_scheduler import central

if __name__ == "__main__":
    sys.exit(central())
