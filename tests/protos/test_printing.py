"""What a terminal or a log would obey is shown as an escape; everything else stays."""

import pytest

from protos.printing import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 😀", "plain ünïcode 😀"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\0", r"a\nb\x00"),
        ("\u202etxt", r"\u202etxt"),
        ("a\ud800b", r"a\ud800b"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()
