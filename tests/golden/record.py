"""Records the golden journals, where decisions are to change: the commit lists which.

python -m tests.golden.record [GROUP ...]            plays the stories again: some minutes
python -m tests.golden.record --again [GROUP ...]    keeps the facts, and decides again: a minute
"""

import argparse
import lzma
import sys
import tempfile
from multiprocessing import Pool
from pathlib import Path

import orjson

from central.controllers.composite import new_scheduler
from central.scheduler import cycle
from central.server import codec, replay
from central.server.version import version
from tests.golden import stories
from tests.golden.recorder import recording

FOLDER = Path(__file__).parent / "journals"
FILE_BYTES = 12 << 20  # of journals in one file, before they are compressed


def record(group: str) -> str:
    """Returns what was written."""
    found: list[bytes] = []
    for story in stories.groups()[group]:
        with recording(story.name, stories.MODULES) as recorder:
            story.play()
        for text in recorder.journals():
            if why := _differs(text):
                print(f"{story.name}: left out: {why}", file=sys.stderr, flush=True)
            else:
                found.append(text)
    for old in FOLDER.glob(f"{group}-*"):
        old.unlink()
    parts = _parts(found)
    for number, part in enumerate(parts):
        _write(FOLDER / f"{group}-{number:02}.journal.xz", part)
    return f"{group}: {len(found)} journals in {len(parts)} files"


def decide_again(file: Path) -> str:
    """The same facts, although they answer the decisions of before. Returns what was written."""
    made, lines = new_scheduler(), list[bytes]()
    for raw in lzma.decompress(file.read_bytes()).splitlines(keepends=True):
        [(kind, content), *rest] = orjson.loads(raw).items()
        if kind == "decided":
            continue
        lines.append(raw)
        if kind == "journal":
            head = {kind: content, **dict(rest), "version": version()}
            given = head["settings"]
            made = new_scheduler(**{**given, "levels": tuple(given["levels"])})
            lines[-1] = codec.dumps(head) + b"\n"
        elif kind == "learn":
            cycle.apply_facts(made, codec.untagged(content[1]), content[0])
        else:
            decisions = cycle.schedule_once(made, codec.untagged(content[1]), content[0])
            if decisions:
                lines.append(codec.dumps({"decided": codec.tagged(decisions)}) + b"\n")
    _write(file, b"".join(lines))
    return f"{file.name}: decided again"


def _write(file: Path, text: bytes) -> None:
    file.write_bytes(lzma.compress(text, preset=6))


def _differs(text: bytes) -> str:
    """Why a replay does not decide the same; empty: it does."""
    with tempfile.NamedTemporaryFile(suffix=".journal") as file:
        file.write(text)
        file.flush()
        try:
            replay.replay(file.name)
        except (replay.Differs, replay.BadJournal) as error:
            return str(error)
    return ""


def _parts(found: list[bytes]) -> list[bytes]:
    parts: list[bytes] = []
    for text in found:
        if parts and len(parts[-1]) + len(text) <= FILE_BYTES:
            parts[-1] += text
        else:
            parts.append(text)
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="keep the facts")
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=[*stories.groups()])
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    files = [file for group in args.groups for file in sorted(FOLDER.glob(f"{group}-*"))]
    with Pool(maxtasksperchild=1) as pool:
        done = (
            pool.imap_unordered(decide_again, files)
            if args.again
            else pool.imap_unordered(record, args.groups)
        )
        for line in done:
            print(line, flush=True)


if __name__ == "__main__":
    main()
