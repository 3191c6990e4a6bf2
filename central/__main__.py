"""python -m central is the command lockstep."""

import sys

from central.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
