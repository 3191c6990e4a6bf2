"""A /proc/self/status in a directory of the test."""

from pathlib import Path

ALL = 0x1FFFFFFFFFF


def of_the_host(root: Path, *, capabilities: int = ALL) -> None:
    """A process in the host's PID namespace, as with hostPID."""
    _write(root, "4242", capabilities)


def of_a_container(root: Path, *, capabilities: int = 0) -> None:
    """A process in its own PID namespace."""
    _write(root, "4242\t1", capabilities)


def _write(root: Path, numbers: str, capabilities: int) -> None:
    (root / "self").mkdir(parents=True, exist_ok=True)
    text = f"Name:\tlockstep-agent\nCapEff:\t{capabilities:016x}\nNSpid:\t{numbers}\n"
    (root / "self" / "status").write_text(text)
