"""What may stand in the place of a file that the agent reads, each with a name, so that a failure says what it was."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

CONTENTS = {
    "empty": b"",
    "blank": b" \n\n",
    "NUL bytes": b"\0" * 100,
    "no text": b"\xff\xfe\x00\xd8",
    "binary": bytes(range(256)) * 16,
    "minus one": b"-1\n",
    "minus minus one": b"--1",
    "2^31": b"2147483648\n",
    "2^63": b"9223372036854775808\n",
    "5,000 digits": b"9" * 5000,
    "superscript digit": "²".encode(),
    "Arabic digits": "٣٣".encode(),
    "hexadecimal": b"0xffffffffffffffff\n",
    "a fraction": b"1e999\n",
    "max": b"max\n",
    "escape sequence": b"\x1b[2J\x1b[31mred\x1b]0;title\x07\n",
    "right to left": "\u202etxt.exe".encode(),
    "CESU surrogate": b"a\xed\xa0\x80b",
    "10,000 lines": b"a=1 b=2\n" * 10_000,
    "2 MiB": b"x" * (2 << 20),
    "key without value": b"a=\n=b\n=\n",
    "huge limits": b"mlx5_0 hca_handle=99999999999999999999 hca_object=-5\nmlx5_0\n",
    "a limit of 5,000 digits": b"mlx5_0 hca_handle=" + b"9" * 5000 + b" hca_object=1\n",
    "deep JSON": b"[" * 100_000,
    "JSON of another kind": b"[1, 2]",
    "JSON map": b'{"a": {"b": [null]}}',
    "XML": b"<system><cpu numaid='\xc2\xb2'><pci busid='x'/></cpu></system>",
    "XML entities": b"<!DOCTYPE a [<!ENTITY b 'c'>]><system>&b;</system>",
}


class State(NamedTuple):
    name: str
    become: Callable[[Path], None]


def states() -> Iterator[State]:
    for name, content in CONTENTS.items():
        yield State(name, _with(content))
    yield State("missing", _gone)
    yield State("a directory", _directory)
    yield State("a FIFO", _fifo)
    yield State("a link to itself", _circle)
    yield State("a link to nothing", _linked("nothing"))
    yield State("a device without end", _linked("/dev/zero"))
    if os.geteuid() != 0:
        yield State("not permitted", _forbidden)


def _gone(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        for each in file.iterdir():
            _gone(each)
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def _with(content: bytes) -> Callable[[Path], None]:
    def become(file: Path) -> None:
        _gone(file)
        file.write_bytes(content)

    return become


def _directory(file: Path) -> None:
    _gone(file)
    file.mkdir()


def _fifo(file: Path) -> None:
    _gone(file)
    os.mkfifo(file)


def _circle(file: Path) -> None:
    _linked(file.name)(file)


def _linked(target: str) -> Callable[[Path], None]:
    def become(file: Path) -> None:
        _gone(file)
        file.symlink_to(target)

    return become


def _forbidden(file: Path) -> None:
    file.chmod(0)
