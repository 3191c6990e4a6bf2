"""closest() compared with brute force, and on machines with a known answer."""

import random
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest

from protos.closest import closest
from protos.topology import Shape, indices_of, mask_of
from tests.protos.shapes import DGX1, all_alike, pairs_of_two

WORDS = ("NV1", "NV2", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS")
PCIE = {"PIX": 9, "PXB": 8, "PHB": 6, "NODE": 4, "SYS": 0}


def pair(shape: Shape, a: int, b: int) -> tuple[int, int, int, int]:
    word = shape.links[a][b]
    return (
        int(any(mask >> a & 1 and mask >> b & 1 for mask in shape.islands)),
        int(word[2:]) if word.startswith("NV") else 0,
        PCIE.get(word, 0),
        int(bool(shape.numa) and shape.numa[a] == shape.numa[b]),
    )


def inside(shape: Shape, gpus: tuple[int, ...]) -> tuple[int, ...]:
    pairs = [pair(shape, a, b) for a, b in combinations(gpus, 2)]
    return tuple(map(sum, zip(*pairs, strict=True))) if pairs else (0, 0, 0, 0)


def oracle(shape: Shape, free: int, size: int) -> int:
    """The definition: closest inside, closest left behind, lowest indices."""
    gpus = tuple(indices_of(free))
    if size <= 0 or size > len(gpus):
        return 0

    sets: list[tuple[int, ...]] = list(combinations(gpus, size))

    def rank(chosen: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        left = tuple(gpu for gpu in gpus if gpu not in chosen)
        return inside(shape, chosen), inside(shape, left), tuple(-gpu for gpu in chosen)

    best = max(sets, key=rank)
    return mask_of(best)


def random_shape(rng: random.Random) -> Shape:
    """Any machine, also one that nobody builds; few kinds of links, so that there are many ties."""
    count = rng.randint(1, 9)
    words = rng.sample(WORDS, rng.randint(1, 4))
    links = [["X"] * count for _ in range(count)]
    for a, b in combinations(range(count), 2):
        links[a][b] = links[b][a] = rng.choice(words)
    islands: dict[int, int] = {}
    for gpu in range(count):
        name = rng.randint(0, 3)
        islands[name] = islands.get(name, 0) | 1 << gpu
    numa = tuple(rng.randint(0, 1) for _ in range(count)) if rng.random() < 0.5 else ()
    return Shape(tuple(map(tuple, links)), tuple(islands.values()), numa)


@pytest.mark.parametrize("seed", range(150))
def test_it_finds_what_brute_force_finds(seed: int) -> None:
    rng = random.Random(seed)
    shape = random_shape(rng)
    free = rng.getrandbits(shape.count) or 1
    for size in range(shape.count + 2):
        assert closest(shape, free, size) == oracle(shape, free, size), (shape, bin(free), size)


@pytest.mark.parametrize(("free", "size"), [(0, 1), (0b1, 2), (0b1111, 5), (0xFF, 0), (0xFF, -1)])
def test_too_few_free_gpus_give_nothing(free: int, size: int) -> None:
    assert closest(DGX1, free, size) == 0


@pytest.mark.long
def test_the_good_fours_of_the_cube_mesh() -> None:
    assert closest(DGX1, 0xFF, 4) == 0x0F
    assert closest(DGX1, 0xF0, 4) == 0xF0
    assert closest(DGX1, 0xFE, 4) == 0xF0, "without GPU 0 only the other half is whole"
    for free in range(256):
        for size in (1, 2, 3, 4, 8):
            assert closest(DGX1, free, size) == oracle(DGX1, free, size)


def test_a_pair_of_the_cube_mesh_has_two_links_and_one_socket() -> None:
    chosen = list(indices_of(closest(DGX1, 0xFF, 2)))
    assert DGX1.links[chosen[0]][chosen[1]] == "NV2"
    assert chosen in ([0, 3], [1, 2], [2, 3])


def test_a_single_gpu_comes_from_a_broken_pair() -> None:
    shape = pairs_of_two(4)
    assert closest(shape, 0b1111_1101, 1) == 0b1
    assert closest(shape, 0b0111_1111, 1) == 0b0100_0000
    assert closest(shape, 0b0111_1111, 3) == 0b0100_0011


def test_the_smallest_island_that_suffices() -> None:
    shape = all_alike((0b0000_1111, 0b1111_0000), "NV12")
    assert closest(shape, 0b0111_1111, 2) == 0b0011_0000
    assert closest(shape, 0b0111_1111, 3) == 0b0111_0000
    assert closest(shape, 0b0111_1111, 4) == 0b0000_1111
    assert closest(shape, 0b0111_0111, 4) == 0b0001_0111, "most of it on one island"


def test_a_gpu_off_the_fabric_serves_single_requests_first() -> None:
    shape = all_alike((0b1111_1011, 0b0000_0100), "NV18")
    assert closest(shape, 0xFF, 1) == 0b100
    assert closest(shape, 0xFF, 7) == 0b1111_1011
    assert closest(shape, 0b111, 2) == 0b11


def test_one_socket_where_the_fabric_is_even() -> None:
    shape = all_alike((0xFF,), "NV18", numa=(0, 0, 0, 0, 1, 1, 1, 1))
    assert closest(shape, 0b1111_1100, 2) == 0b0000_1100
    assert closest(shape, 0b1111_1100, 4) == 0b1111_0000
    assert closest(shape, 0b0111_1111, 1) == 0b0001_0000, "the other socket stays whole"


def test_gpus_outside_the_shape_are_equal() -> None:
    assert closest(Shape(), 0b1011_0000, 2) == 0b0011_0000


@pytest.mark.parametrize(
    "shape",
    [
        all_alike((0xFFFF,), "NV6"),
        all_alike((0xFFFF,), "NV6", numa=(0,) * 8 + (1,) * 8),
        pairs_of_two(8),
    ],
)
def test_sixteen_gpus_take_few_calls(shape: Shape) -> None:
    assert max(calls(shape, 0xFFFF, size) for size in (8, 7, 9)) < 20_000


@pytest.mark.slow
def test_sixteen_unlike_gpus_are_exact_too() -> None:
    rng = random.Random(16)
    links = [["X"] * 16 for _ in range(16)]
    for a, b in combinations(range(16), 2):
        links[a][b] = links[b][a] = rng.choice(WORDS)
    shape = Shape(tuple(map(tuple, links)))
    for size in (4, 8):
        assert closest(shape, 0xFFFF, size) == oracle(shape, 0xFFFF, size)
    assert calls(shape, 0xFFFF, 8) < 20_000


@pytest.mark.long
def test_more_than_sixteen_are_good_and_quick() -> None:
    rng = random.Random(24)
    links = [["X"] * 24 for _ in range(24)]
    for a, b in combinations(range(24), 2):
        links[a][b] = links[b][a] = rng.choice(WORDS)
    shape = Shape(tuple(map(tuple, links)))
    chosen = closest(shape, (1 << 24) - 1, 3)
    assert inside(shape, tuple(indices_of(chosen))) == inside(
        shape, tuple(indices_of(oracle(shape, (1 << 24) - 1, 3)))
    )
    assert closest(shape, (1 << 24) - 1, 12).bit_count() == 12


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_beyond_sixteen_no_exchange_of_one_gpu_is_better(seed: int) -> None:
    """Of unlike GPUs, whose best set cannot be found by trying all."""
    rng = random.Random(seed)
    links = [["X"] * 18 for _ in range(18)]
    for a, b in combinations(range(18), 2):
        links[a][b] = links[b][a] = rng.choice(("NV1", "NV2", "PIX", "SYS"))
    shape = Shape(tuple(map(tuple, links)))
    for size in (2, 3, 5, 9):
        found = tuple(indices_of(closest(shape, (1 << 18) - 1, size)))
        assert len(found) == size

        def value(chosen: Iterable[int]) -> tuple[object, ...]:
            left = tuple(gpu for gpu in range(18) if gpu not in chosen)
            inner = tuple(sorted(chosen))
            return inside(shape, inner), inside(shape, left), tuple(-gpu for gpu in inner)

        others = [
            {*found, into} - {out} for out in found for into in range(18) if into not in found
        ]
        assert all(value(other) < value(found) for other in others)
        if size < 4:
            assert mask_of(found) == oracle(shape, (1 << 18) - 1, size)


def test_a_link_without_a_number_counts_as_none() -> None:
    shape = Shape((("X", "NV", "SYS"), ("NV", "X", "PIX"), ("SYS", "PIX", "X")))
    assert closest(shape, 0b111, 2) == 0b110


def calls(shape: Shape, free: int, size: int) -> int:
    """How many functions an uncached choice calls: the same on every machine."""
    count = 0

    def on_event(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        closest.__wrapped__(shape, free, size)
    finally:
        sys.setprofile(None)
    return count


def test_a_slow_gpu_is_taken_only_where_the_others_do_not_suffice() -> None:
    shape = replace(pairs_of_two(8), slow=0b1)
    assert closest(shape, 0b1111, 2) == 0b1100, "though GPUs 0 and 1 are as close"
    assert closest(shape, 0b0111, 2) == 0b0110, "though GPUs 0 and 1 are closer"
    assert closest(shape, 0b0111, 3) == 0b0111
    assert closest(shape, 0b1, 1) == 0b1
    assert closest(shape, 0b11, 0) == 0
    several = replace(shape, slow=0b111)
    assert closest(several, 0b1111, 2) == 0b0011, "one is slow in any case: the closest"
