"""In place of PyTorch: vectors of numbers, and no GPU."""

from torch import cuda as cuda


class ones:  # noqa: N801  # as it is called there
    def __init__(self, count: int, value: float = 1.0, device: str = "cpu") -> None:
        assert device == "cpu"
        self.count, self.value = count, value

    def __mul__(self, factor: float) -> "ones":
        return ones(self.count, self.value * factor)

    def item(self) -> float:
        return self.value
