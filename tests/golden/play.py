"""`make golden`: replays the golden journals and prints the first difference as both decisions in full.

python -m tests.golden.play [--wording] [FILE ...]       FILE: of tests/golden/journals; none: all of them
"""

import argparse
import sys
import time
import traceback
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from central.server import replay

FILES = sorted((Path(__file__).parent / "journals").glob("*.journal.xz"))


def difference(file: Path, *, wording: bool = False) -> str:
    """The first one of the file; empty: there is none. wording: reasons and Events are compared, too."""
    try:
        replay.replay(str(file), decisions_only=not wording)
    except replay.Differs as error:
        return f"{file.name}: decisions differ: {error}"
    except Exception:  # noqa: BLE001  that a cycle fails is a difference
        return f"{file.name}: {traceback.format_exc()}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wording", action="store_true", help="compare reasons and Events, too")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", default=FILES)
    args = parser.parse_args()
    began = time.monotonic()
    with Pool() as pool:
        play = partial(difference, wording=args.wording)
        for found in pool.imap(play, args.files, chunksize=1):
            if found:
                print(found)
                return 1
    print(f"{len(args.files)} files: the same decisions ({time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
