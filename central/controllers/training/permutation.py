"""A seeded permutation of 0 to n - 1 that is computed item by item, without an array."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

_ROUNDS = 4
_MOST_BITS = 10  # of half a value, for which all hashes are computed once: up to 2^20 items


def permuted(position: int, n: int, seed: int, epoch: int) -> int:
    """A Feistel network over the next even number of bits; results of n and above are walked through again
    (cycle walking), so that the values of 0 to n - 1 are a permutation."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    key = f"{seed}/{epoch}".encode()
    tables = _tables(half, key) if half <= _MOST_BITS else None
    value = position
    while True:
        value = _network(value, half, key) if tables is None else _looked_up(value, half, tables)
        if value < n:
            return value


def _network(value: int, half: int, key: bytes) -> int:
    left, right = value >> half, value & ((1 << half) - 1)
    for turn in range(_ROUNDS):
        left, right = right, left ^ _hashed(turn, right, half, key)
    return left << half | right


def _looked_up(value: int, half: int, tables: Sequence[Sequence[int]]) -> int:
    left, right = value >> half, value & ((1 << half) - 1)
    for table in tables:
        left, right = right, left ^ table[right]
    return left << half | right


def _hashed(turn: int, right: int, half: int, key: bytes) -> int:
    data = turn.to_bytes(1, "big") + right.to_bytes(8, "big")
    digest = blake2b(data, digest_size=8, key=key[:64]).digest()
    return int.from_bytes(digest, "big") & ((1 << half) - 1)


@lru_cache(maxsize=8)
def _tables(half: int, key: bytes) -> tuple[list[int], ...]:
    """Returns by round the hashes of all values of a half: 4,096 at most, 10 ms."""
    return tuple(
        [_hashed(turn, right, half, key) for right in range(1 << half)] for turn in range(_ROUNDS)
    )
