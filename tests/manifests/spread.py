"""The spec of a job is part of three definitions: this copies it from jobs.yaml into the others.

python -m tests.manifests.spread

Design: docs/design/admission.md
"""

import re
from itertools import takewhile

from tests.manifests.manifests import FOLDER

CRDS = FOLDER / "crds"
SOURCE = CRDS / "jobs.yaml"
COPIES = (CRDS / "cronjobs.yaml", CRDS / "jobtemplates.yaml")
MARK = re.compile(r"^( +)spec:.*# of jobs\.yaml$")


def block(lines: list[str], start: int) -> list[str]:
    """A key's line and all that is deeper below it."""
    depth = _depth(lines[start])
    return [lines[start], *takewhile(lambda line: _depth(line) > depth, lines[start + 1 :])]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def spread(text: str) -> str:
    """This definition with the spec that jobs.yaml has now."""
    source = SOURCE.read_text().splitlines()
    spec = block(source, source.index("            spec:"))
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if MARK.match(line))
    deeper = _depth(lines[at]) - _depth(spec[0])
    copy = [" " * (_depth(line) + deeper) + line.strip() for line in spec[1:]]
    head = " " * _depth(lines[at]) + "spec: # of jobs.yaml"
    return "\n".join([*lines[:at], head, *copy, *lines[at + len(block(lines, at)) :], ""])


def main() -> None:
    for path in COPIES:
        path.write_text(spread(path.read_text()))


if __name__ == "__main__":
    main()
