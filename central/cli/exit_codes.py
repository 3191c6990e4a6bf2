"""Exit codes by kind of failure. Documented in docs/design/command-line.md."""

FAILED = 1  # the command did what it was asked; the job failed, or decisions differ
USAGE = 2  # wrong arguments, or a wrong manifest
NOT_FOUND = 3
REFUSED = 4  # by the API server or the scheduler: rights, a conflict, an invalid object
UNREACHABLE = 5  # no answer, or none now
