"""Names and keys stay whole where they can."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.common.text_fold import fold, hung, pieces

WORDS = st.lists(st.text("ab,/=-", min_size=1, max_size=30), max_size=12)


@pytest.mark.long
@given(words=WORDS, width=st.integers(1, 40))
def test_lines_are_full_and_words_that_fit_stay_whole(words: list[str], width: int) -> None:
    lines = fold(" ".join(words), width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == "".join(words)
    assert all(line == line.strip() for line in lines)
    on_lines = [word for line in lines for word in line.split()]
    left = iter(on_lines)
    for word in words:
        if len(word) <= width:
            assert word in left, "in the order of the text"
    for line, following in itertools.pairwise(lines):
        shortest = min(map(len, pieces(following.split()[0], width)))
        assert (
            len(line) + 1 + shortest > width
            or following[:1] in ",/="
            or len(line) + len(following.split()[0]) > width
        )


def test_a_long_word_breaks_after_commas_before_slashes() -> None:
    assert fold("keys a.io/zone,b.io/rack", 12) == ["keys", "a.io/zone,", "b.io/rack"]
    assert fold("x a.io/zone-of-all", 12) == ["x a.io/", "zone-of-all"]
    assert fold("NAME=abcdefgh,i", 8) == ["NAME=", "abcdefgh", ",i"]
    assert fold("abcdefgh", 3) == ["abc", "def", "gh"]
    assert fold("", 3) == fold("  ", 3) == [""]


def test_what_is_folded_off_hangs() -> None:
    assert hung("  one two", 9) == "  one two"
    assert hung("  one two three", 9) == "  one\n    two\n    three"
    assert hung("", 1) == ""
    assert hung("    abc", 1).split() == ["a", "b", "c"]
