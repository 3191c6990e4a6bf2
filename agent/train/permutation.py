"""A pseudorandom permutation of 0..length-1 as a pure function: no array, constant memory at any length.

An alternating Feistel network over pairs (left, right) with left < a, right < b and a * b >= length
(J. Black and P. Rogaway, "Ciphers with arbitrary finite domains", 2002). Values at or above the length
are permuted again until they fall below it (cycle walking); since a * b is at most length + 2 * sqrt(length)
this is rare. blake2b derives the keys of the rounds; the rounds mix by multiplication and shifts of
64-bit integers (the finalizer of SplitMix64), which numpy computes for many values at once."""

from __future__ import annotations

from hashlib import blake2b
from math import isqrt
from typing import Any

try:
    import numpy as _numpy
except ImportError:  # the same numbers, one at a time
    _numpy = None  # type: ignore[assignment]
numpy: Any = _numpy

MOST_LENGTH = 2**62
ROUNDS = 8
VECTOR_FROM = 32  # values; below this numpy's calls cost more than they save
_MASK = 2**64 - 1
_MULTIPLY_1, _MULTIPLY_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Permutation:
    """The bijection of 0..length-1 that belongs to a key (any integers)."""

    def __init__(self, length: int, *key: int) -> None:
        if not 0 < length <= MOST_LENGTH:
            raise ValueError(f"length={length}: must be from 1 to {MOST_LENGTH}")
        self.length = length
        self._left = isqrt(length - 1) + 1  # ceil(sqrt(length))
        self._right = -(-length // self._left)
        text = ",".join(map(str, key)).encode()
        self._keys = [
            int.from_bytes(
                blake2b(text, digest_size=8, person=b"lockstep", salt=bytes([number])).digest(),
                "little",
            )
            for number in range(ROUNDS)
        ]

    def at(self, position: int) -> int:
        """The value at a position."""
        if not 0 <= position < self.length:
            raise IndexError(f"position {position} of a permutation of {self.length}")
        while True:
            position = self._once(position)
            if position < self.length:
                return position

    def span(self, start: int, stop: int) -> list[int]:
        """The values at start, start + 1, ..., stop - 1."""
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"positions {start} to {stop} of a permutation of {self.length}")
        if numpy is None or stop - start < VECTOR_FROM:
            return [self.at(position) for position in range(start, stop)]
        return self._vector(numpy.arange(start, stop, dtype=numpy.uint64))

    def _once(self, value: int) -> int:
        right, left = divmod(value, self._left)
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _mixed(left, key) % self._right) % self._right
            else:
                left = (left + _mixed(right, key) % self._left) % self._left
        return right * self._left + left

    def _vector(self, values: Any) -> list[int]:
        above = numpy.arange(len(values))
        while len(above):
            values[above] = self._once_vector(values[above])
            above = above[values[above] >= self.length]
        return [int(value) for value in values.tolist()]

    def _once_vector(self, values: Any) -> Any:
        uint = numpy.uint64
        size_left, size_right = uint(self._left), uint(self._right)
        left, right = values % size_left, values // size_left
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _mixed_vector(left, key) % size_right) % size_right
            else:
                left = (left + _mixed_vector(right, key) % size_left) % size_left
        return right * size_left + left


def _mixed(value: int, key: int) -> int:
    value = (value + key) & _MASK
    value = ((value ^ (value >> 30)) * _MULTIPLY_1) & _MASK
    value = ((value ^ (value >> 27)) * _MULTIPLY_2) & _MASK
    return value ^ (value >> 31)


def _mixed_vector(values: Any, key: int) -> Any:
    uint = numpy.uint64
    values = values + uint(key)  # unsigned: wraps at 2^64, as the mask does
    values = (values ^ (values >> uint(30))) * uint(_MULTIPLY_1)
    values = (values ^ (values >> uint(27))) * uint(_MULTIPLY_2)
    return values ^ (values >> uint(31))
