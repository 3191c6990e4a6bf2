import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# A busy machine decides how long an example takes by the clock.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# Audit events of Python (its documentation lists them) that start a program or use the network.
OUTSIDE = {
    "subprocess.Popen", "os.posix_spawn", "os.system", "os.exec", "os.fork", "os.forkpty", "socket.connect"
}  # fmt: skip
_collecting: list[pytest.Session] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite expected answers")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Forbids programs and the network while modules of tests are imported: a fresh machine may have neither."""
    _collecting.append(session)
    try:
        return (yield)
    finally:
        _collecting.clear()


def _forbid_while_collecting(event: str, arguments: tuple[Any, ...]) -> None:
    if _collecting and event in OUTSIDE:
        what = f"{event}{arguments[:2]}"
        raise RuntimeError(
            f"{what} while tests are collected: call it in a test or a fixture, not on import"
        )


sys.addaudithook(_forbid_while_collecting)
