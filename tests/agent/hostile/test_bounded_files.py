"""Files of every kind against the rule: a regular file of at most so many bytes is read, all else fails with a
reason."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import bounded_files

MOST = 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "most").write_bytes(b"x" * MOST)
    (tmp_path / "more").write_bytes(b"x" * MOST + b"y")
    (tmp_path / "not text").write_bytes(b" a\xff ")
    (tmp_path / "deep").write_bytes(b"[" * 900)
    (tmp_path / "half").write_bytes(b'{"a": ')
    (tmp_path / "json").write_bytes(b'{"a": [1, "\xc3\xa9"]}')
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to("nothing")
    (tmp_path / "link").symlink_to("most")
    return tmp_path


REFUSED = {
    "more": (errno.EFBIG, "larger than 1 KiB"),
    "folder": (errno.EISDIR, os.strerror(errno.EISDIR)),
    "fifo": (errno.EINVAL, "not a regular file"),
    "gone": (errno.ENOENT, os.strerror(errno.ENOENT)),
}


def refused(error: OSError) -> tuple[int | None, str]:
    return error.errno, error.strerror or ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_or_too_long_fails_with_its_name(folder: Path, name: str) -> None:
    file = folder / name
    before = len(list(Path("/proc/self/fd").iterdir()))
    for read in (bounded_files.read_bytes, bounded_files.read_text, bounded_files.read_json):
        with pytest.raises(OSError) as error:  # noqa: PT011  (the reason is compared)
            read(file, MOST)
        assert refused(error.value) == REFUSED[name]
        assert error.value.filename == str(file)
    assert bounded_files.text_or_empty(file, MOST) == ""
    assert bounded_files.end_or_empty(file, MOST) == ("x" * 1023 + "y" if name == "more" else "")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_read(folder: Path) -> None:
    for name in ("most", "link"):
        assert bounded_files.read_bytes(folder / name, MOST) == b"x" * MOST
        assert bounded_files.read_text(folder / name, MOST) == "x" * MOST
    assert bounded_files.read_bytes(folder / "empty", MOST) == b""
    assert bounded_files.read_json(folder / "json", MOST) == {"a": [1, "é"]}
    assert bounded_files.text_or_empty(folder / "not text", MOST) == "a\ufffd"
    assert bounded_files.text_or_empty(folder / "a\0b", MOST) == ""
    assert bounded_files.end_or_empty(folder / "not text", MOST) == " a\ufffd "
    assert bounded_files.end_or_empty(folder / "not text", 2) == "\ufffd "
    (folder / "kernel").write_bytes(b"x" * (64 << 10))
    assert len(bounded_files.read_bytes(folder / "kernel")) == 64 << 10


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("not text", "not UTF-8 text"),
        ("half", "not JSON: Expecting value"),
        ("empty", "not JSON: Expecting value"),
    ],
)
def test_what_is_no_json(folder: Path, name: str, says: str) -> None:
    with pytest.raises(OSError, match=says) as error:
        bounded_files.read_json(folder / name, MOST)
    assert (error.value.errno, error.value.filename) == (errno.EILSEQ, str(folder / name))


def test_deep_json_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "deep").write_bytes(b"[" * 500_000)
    with pytest.raises(OSError, match="not JSON: ") as error:
        bounded_files.read_json(tmp_path / "deep", 1 << 20)
    assert error.value.filename == str(tmp_path / "deep")


@pytest.mark.parametrize(
    ("most", "says"), [(1 << 10, "1 KiB"), (1023 << 10, "1023 KiB"), (1 << 20, "1 MiB")]
)
def test_a_size_is_named_in_its_unit(tmp_path: Path, most: int, says: str) -> None:
    (tmp_path / "long").write_bytes(b"x" * (most + 1))
    with pytest.raises(OSError, match=f"larger than {says}$|larger than {says}:"):
        bounded_files.read_bytes(tmp_path / "long", most)


@given(st.integers(-(10**20), 10**20))
def test_a_number_has_at_most_19_digits(value: int) -> None:
    expected = value if abs(value) < 10**19 else -7
    assert bounded_files.number(str(value), -7) == expected


@pytest.mark.parametrize(
    "text", ["", "-", "--1", "+1", "1 ", "1_0", "1.0", "\u0663", "\u00b2", "1\n"]
)
def test_what_is_no_number(text: str) -> None:
    assert bounded_files.number(text) == -1
    assert bounded_files.number(text, 0) == 0


def test_what_a_place_is(folder: Path) -> None:
    kinds = {
        name: (
            bounded_files.exists(folder / name),
            bounded_files.is_folder(folder / name),
            bounded_files.is_file(folder / name),
        )
        for name in ("most", "link", "folder", "fifo", "gone", "most/below")
    }
    assert kinds == {
        "most": (True, False, True),
        "link": (True, False, True),
        "folder": (True, True, False),
        "fifo": (True, False, False),
        "gone": (False, False, False),
        "most/below": (False, False, False),
    }


WRITER = """
import sys
from pathlib import Path
from agent.bounded_files import replace_text
for _ in range(400):
    replace_text(Path(sys.argv[1]), sys.argv[2] * int(sys.argv[3]), 0o444)
"""


def test_two_processes_that_write_a_file_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    contents = {"a" * 50_000, "b" * 7}
    bounded_files.replace_text(file, "b" * 7)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, file, each[0], str(len(each))])
        for each in contents
    ]
    while any(writer.poll() is None for writer in writers):
        assert file.read_text() in contents
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [each.name for each in tmp_path.iterdir()] == ["spec.json"]
