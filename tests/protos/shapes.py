"""Shapes of machines for tests."""

from protos.topology import Shape

_DGX1 = """
    X NV1 NV1 NV2 NV2 SYS SYS SYS
    NV1 X NV2 NV1 SYS NV2 SYS SYS
    NV1 NV2 X NV2 SYS SYS NV1 SYS
    NV2 NV1 NV2 X SYS SYS SYS NV1
    NV2 SYS SYS SYS X NV1 NV1 NV2
    SYS NV2 SYS SYS NV1 X NV2 NV1
    SYS SYS NV1 SYS NV1 NV2 X NV2
    SYS SYS SYS NV1 NV2 NV1 NV2 X"""
DGX1 = Shape(
    links=tuple(tuple(line.split()) for line in _DGX1.strip().splitlines()),
    islands=(0xFF,),
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
)


def all_alike(islands: tuple[int, ...], word: str, numa: tuple[int, ...] = ()) -> Shape:
    """GPUs of an island are connected by `word`, GPUs of different islands by SYS."""
    count = max(islands).bit_length()

    def cell(a: int, b: int) -> str:
        if a == b:
            return "X"
        return word if any(mask >> a & mask >> b & 1 for mask in islands) else "SYS"

    return Shape(
        tuple(tuple(cell(a, b) for b in range(count)) for a in range(count)), islands, numa
    )


def pairs_of_two(pairs: int) -> Shape:
    """NVLink bridges: GPUs 0 and 1, 2 and 3 ... are islands of their own."""
    return all_alike(tuple(0b11 << 2 * pair for pair in range(pairs)), "NV4")
