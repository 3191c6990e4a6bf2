"""Compressed texts that others may have written: what they stand for is bounded before it takes memory."""

import zlib


def inflated(text: bytes, most: int) -> bytes | None:
    """Decompresses the text; None if it is cut off or larger than `most` bytes. Raises zlib.error."""
    unpack = zlib.decompressobj()
    plain = unpack.decompress(text, most)
    return plain if unpack.eof and not unpack.unconsumed_tail else None
