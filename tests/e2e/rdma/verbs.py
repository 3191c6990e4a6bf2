"""Opens contexts and protection domains of one HCA by the kernel's own words for it, and says how
many it got, as one JSON line: python verbs.py rxe0 OPENS DOMAINS CGROUP [hold]

A context is one hca_handle of the rdma controller, a protection domain one hca_object. With hold it
keeps them until its input ends. No library is needed."""

import ctypes
import errno
import json
import os
import struct
import sys
from pathlib import Path

GET_CONTEXT, ALLOC_PD = 0, 3


def command(handle: int, number: int, size: int) -> None:
    """Raises OSError with the kernel's errno. The input is where the answer goes, and nothing else."""
    answer = ctypes.create_string_buffer(size)
    os.write(handle, struct.pack("=IHHQ", number, 4, size // 4, ctypes.addressof(answer)))


def file_of(card: str) -> str:
    for path in Path("/sys/class/infiniband_verbs").glob("uverbs*"):
        if (path / "ibdev").read_text().strip() == card:
            return f"/dev/infiniband/{path.name}"
    raise SystemExit(f"{card} has no uverbs file")


def main(card: str, opens: str, domains: str, cgroup: str, hold: str = "") -> None:
    (Path(cgroup) / "cgroup.procs").write_text(str(os.getpid()))
    contexts: list[int] = []
    made, why = 0, ""
    try:
        for _ in range(int(opens)):
            handle = os.open(file_of(card), os.O_RDWR)
            command(handle, GET_CONTEXT, 8)
            contexts.append(handle)
        for _ in range(int(domains)):
            command(contexts[0], ALLOC_PD, 4)
            made += 1
    except OSError as error:
        why = errno.errorcode[error.errno or 0]
    print(json.dumps([len(contexts), made, why]), flush=True)
    if hold:
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
