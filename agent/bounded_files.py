"""Reads files that others write: the kernel, the kubelet, gpu-setup, an administrator. Whatever is in the
place of such a file, reading it takes bounded memory, ends, and fails with an OSError whose strerror
says what is wrong.

A FIFO or a device is refused without waiting for it, content of another length or kind is refused
whole: half a number is another number.

Design: docs/design/hostile-inputs.md
"""

import errno
import json
import os
import os.path
import re
import stat
import uuid
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 65_536  # of a file of the kernel; they have 4096 as a rule
NO_FILE = "not a regular file"
PROCESS = uuid.uuid4().hex[:8]  # not its number, which two containers may both have
NUMBER = re.compile(r"-?[0-9]{1,19}")


def read_bytes(file: Path, most: int = MOST_BYTES) -> bytes:
    """Raises OSError."""
    with _opened(file) as opened:
        found = opened.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {_size(most)}", str(file))
    return found


def _opened(file: Path) -> IO[bytes]:
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(
            number, os.strerror(errno.EISDIR) if number == errno.EISDIR else NO_FILE, str(file)
        )
    return os.fdopen(handle, "rb")


def read_text(file: Path, most: int = MOST_BYTES) -> str:
    """Raises OSError, also for content that is not UTF-8."""
    try:
        return read_bytes(file, most).decode()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "not UTF-8 text", str(file)) from None


def text_or_empty(file: Path, most: int = MOST_BYTES) -> str:
    """The content without space around it; empty if it cannot be read. What is not UTF-8 is replaced."""
    try:
        return read_bytes(file, most).decode(errors="replace").strip()
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return ""


def end_or_empty(file: Path, most: int = MOST_BYTES) -> str:
    """The last part of a log; empty if it cannot be read."""
    try:
        with _opened(file) as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - most))
            return opened.read(most).decode(errors="replace")
    except OSError:
        return ""


def read_json(file: Path, most: int) -> Any:
    """Raises OSError, also for content that is not JSON."""
    try:
        return parsed(read_text(file, most))
    except ValueError as error:
        raise OSError(errno.EILSEQ, f"not JSON: {error}", str(file)) from None


def parsed(text: str) -> Any:
    """The value of JSON. Raises ValueError, also for what is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def number(text: str, otherwise: int = -1) -> int:
    """A decimal number of at most 19 digits."""
    return int(text) if NUMBER.fullmatch(text) else otherwise


def replace_text(file: Path, text: str, mode: int = 0o644, *, durable: bool = False) -> None:
    """Writes the file at once: no reader sees a part, whichever other process writes it too. durable: it survives a
    power failure. Raises OSError."""
    part = file.with_name(f".{file.name}.{PROCESS}")
    try:
        part.write_text(text, encoding="utf-8")
        part.chmod(mode)
        if durable:
            sync(part)
        part.replace(file)
        if durable:
            sync(file.parent)
    finally:
        part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Returns when the content of the file or folder is on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exists(path: Path) -> bool:
    """False also where the question fails, as for lack of rights; Path.exists() raises."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path) -> bool:
    """Returns whether the path is a folder. Raises OSError as exists() does."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    """Returns whether the path is a file. Raises OSError as exists() does."""
    return os.path.isfile(path)  # noqa: PTH113


def _size(most: int) -> str:
    return f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
