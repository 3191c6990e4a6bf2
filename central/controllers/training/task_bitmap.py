"""A set of task numbers as bits; as text: compressed, base64."""

import zlib
from base64 import b64decode, b64encode


class BitMap:
    __slots__ = ("_bits", "count", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self._bits = bytearray((size + 7) // 8)

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        if number not in self:
            self._bits[number >> 3] |= 1 << (number & 7)
            self.count += 1

    def copy(self) -> "BitMap":
        made = BitMap(self.size)
        made._bits[:] = self._bits
        made.count = self.count
        return made

    def to_text(self) -> str:
        return b64encode(zlib.compress(self._bits)).decode()

    @classmethod
    def from_text(cls, text: str, size: int) -> "BitMap":
        """Raises ValueError if the text is not of that many tasks."""
        made = cls(size)
        unpack = zlib.decompressobj()
        bits = unpack.decompress(b64decode(text, validate=True), len(made._bits) + 1)
        if len(bits) != len(made._bits):
            raise ValueError(f"it is not a set of {size} tasks")
        made._bits[:] = bits
        made.count = int.from_bytes(bits, "big").bit_count()
        return made
