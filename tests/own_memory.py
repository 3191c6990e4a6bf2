"""Memory that a process has written itself, on any machine."""

import re
from pathlib import Path


def own_bytes(process: int | str = "self") -> int:
    """Without pages of program files: how many of those are resident is the kernel's choice, and depends on the machine
    and on who else has read them. smaps_rollup counts exactly; the counters in `status` are estimates on a machine with
    many cores."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
    found = re.search(r"^Anonymous: +(\d+) kB$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) << 10
