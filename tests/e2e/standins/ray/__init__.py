"""In place of Ray: a program that asks the head which nodes have joined."""

from meet import reach

_head = ("", 0)


def init(address: str) -> None:
    global _head  # noqa: PLW0603  # as there
    host, port = address.removeprefix("ray://").split(":")
    _head = (host, int(port))
    nodes()


def nodes() -> list[dict[str, bool]]:
    return [{"Alive": True}] * int(reach(*_head, 0))
