"""A seeded permutation of 0 to n - 1 that is computed item by item, without an array."""

from hashlib import blake2b

_ROUNDS = 4


def permuted(position: int, n: int, seed: int, epoch: int) -> int:
    """A Feistel network over the next even number of bits; results of n and above are walked through again
    (cycle walking), so that the values of 0 to n - 1 are a permutation."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    key = f"{seed}/{epoch}".encode()
    value = position
    while True:
        value = _network(value, half, key)
        if value < n:
            return value


def _network(value: int, half: int, key: bytes) -> int:
    mask = (1 << half) - 1
    left, right = value >> half, value & mask
    for turn in range(_ROUNDS):
        data = turn.to_bytes(1, "big") + right.to_bytes(8, "big")
        digest = blake2b(data, digest_size=8, key=key[:64]).digest()
        left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
    return left << half | right
