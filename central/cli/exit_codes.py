"""Exit codes by kind of failure. Documented in docs/design/command-line.md."""

from protos.printing import error_lines

FAILED = 1  # the command did what it was asked; the job failed, or decisions differ
USAGE = 2  # wrong arguments, or a wrong manifest
NOT_FOUND = 3
REFUSED = 4  # by the API server or the scheduler: rights, a conflict, an invalid object
UNREACHABLE = 5  # no answer, or none now


class CannotDo(Exception):
    """A sentence for the user. code: the exit code."""

    def __init__(self, why: object, code: int = USAGE) -> None:
        super().__init__(error_lines(str(why)))
        self.code = code
