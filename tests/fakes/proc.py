"""What the kernel says of the process that asks, below a /proc of the tests' own."""

from pathlib import Path

ALL = 0x1FFFFFFFFFF


def of_the_host(root: Path, *, capabilities: int = ALL) -> None:
    """A process that has the numbers of its machine, as with hostPID."""
    _write(root, "4242", capabilities)


def of_a_container(root: Path, *, capabilities: int = 0) -> None:
    """A process that has numbers of its own beside those of the machine."""
    _write(root, "4242\t1", capabilities)


def _write(root: Path, numbers: str, capabilities: int) -> None:
    (root / "self").mkdir(parents=True, exist_ok=True)
    text = f"Name:\tlockstep-agent\nCapEff:\t{capabilities:016x}\nNSpid:\t{numbers}\n"
    (root / "self" / "status").write_text(text)
