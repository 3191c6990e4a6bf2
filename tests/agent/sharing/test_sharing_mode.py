"""The text of a sharing configuration."""

from pathlib import Path

import pytest

from agent.sharing.share_policy import SharePolicy
from agent.sharing.sharing_mode import SharingMode, parse

EXAMPLE = """
# the first four for inference
0-3: mps
4, 5: kernel
6: watch timeslice=long
7: whole
5: none
"""


def test_each_gpu_has_its_way() -> None:
    ways = parse(EXAMPLE)
    assert [ways.of(gpu).by for gpu in range(9)] == [
        *["mps"] * 4,
        *["kernel", "none", "watch", "whole", "whole"],
    ]
    assert ways.of(6) == SharingMode("watch", "long")
    assert parse("0-3: mps; 4,5: kernel; 6: watch timeslice=long; 5: none").of(5) == SharingMode(
        "none"
    )


@pytest.mark.parametrize(
    ("text", "shared"), [("all", {0, 1, 2}), ("none", set()), (" 0, 2\n", {0, 2}), ("1", {1})]
)
def test_without_a_word_as_well_as_the_node_can(text: str, shared: set[int]) -> None:
    assert {gpu for gpu in range(3) if parse(text).of(gpu).by == "auto"} == shared


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no GPU"),
        ("first", "'first' is neither a GPU index"),
        ("0-: mps", "neither a GPU index"),
        ("0: fast", "use one of whole, auto, kernel, mps, watch, none"),
        ("0:", "use one of"),
        ("0: watch mps", "use one of"),
        ("0: watch timeslice=huge", "timeslice= takes one of default, short, medium, long"),
        ("0: mps timeslice=long", "time slices apply only to"),
        ("none; 0: mps", "'none' is neither a GPU index"),
    ],
)
def test_what_nobody_can_mean_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_a_mistake_changes_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = SharePolicy(tmp_path, "n", "none")
    assert policy.current().of(0).by == "whole"
    (tmp_path / "default").write_text("all: watch")
    assert policy.current().of(0).by == "watch"
    (tmp_path / "n").write_text("0: fats")
    assert policy.current().of(0).by == "watch"
    assert (
        f"keeping the last sharing configuration (all: watch): {tmp_path}/n: '0: fats'"
        in caplog.text
    )
    (tmp_path / "n").write_text("0: mps")
    assert policy.current().of(0).by == "mps"
