"""Pages of program files that are given back: only of what differs in nothing from the file."""

import hashlib
import ssl
from pathlib import Path

from central.coordinator import program_pages

SMAPS = """\
7f00000000-7f00002000 r-xp 00000000 08:01 11 /lib/a.so
Size:                  8 kB
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f00002000-7f00003000 r--p 00002000 08:01 11 /lib/written by the loader.so
Rss:                   4 kB
Anonymous:             4 kB
7f00003000-7f00004000 rw-p 00003000 08:01 11 /lib/a.so
Rss:                   4 kB
Anonymous:             0 kB
7f00004000-7f00005000 r--s 00000000 08:01 12 /shared (deleted)
Rss:                   4 kB
Anonymous:             0 kB
7f00005000-7f00006000 r-xp 00000000 00:00 0                              [vdso]
Rss:                   4 kB
Anonymous:             0 kB
7f00006000-7f00007000 r--p 00000000 08:01 13 /lib/not read yet.so
Rss:                   0 kB
Anonymous:             0 kB
7f00007000-7f00009000 r--p 00000000 08:01 14 /lib/b.so
Rss:                   4 kB
Anonymous:             0 kB
"""


def test_only_what_nobody_can_write_and_nobody_has_written() -> None:
    found = list(program_pages._unchanged(SMAPS))
    assert found == [(0x7F00000000, 0x7F00002000, 8192), (0x7F00007000, 0x7F00009000, 4096)]


def test_a_process_has_fewer_pages_afterwards_and_goes_on() -> None:
    ssl.create_default_context()
    before = _of_files()
    assert program_pages.give_back() > 1 << 20
    assert _of_files() < before - (1 << 20)
    ssl.create_default_context()
    assert hashlib.sha256(b"a").hexdigest().startswith("ca978112")


def _of_files() -> int:
    """Resident bytes."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) << 10
