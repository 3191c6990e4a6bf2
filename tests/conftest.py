import gc
import os
import random
import sys
from collections import defaultdict
from collections.abc import Generator
from datetime import UTC, datetime
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


SEEDS = ("seed", "base")  # names of parameters whose values are seeds; base is the first of a block


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite expected answers")


def pytest_configure() -> None:
    os.environ.setdefault("LOCKSTEP_SEED", datetime.now(UTC).date().isoformat())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps one seed of each test that is left after -m and -k, another one each day. LOCKSTEP_SEED=all keeps all of
    them."""
    today = os.environ["LOCKSTEP_SEED"]
    if today == "all" or any("[" in argument for argument in config.args):
        return
    alike: defaultdict[object, list[pytest.Item]] = defaultdict(list)  # equal but for the seed
    for item in items:
        given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if not given.keys().isdisjoint(SEEDS):
            others = tuple((name, id(value)) for name, value in given.items() if name not in SEEDS)
            alike[item.nodeid.partition("[")[0], others].append(item)
    left_out: set[pytest.Item] = set()
    for group in alike.values():
        chosen = random.Random(f"{today} {group[0].nodeid}").choice(group)
        left_out.update(item for item in group if item is not chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"LOCKSTEP_SEED={os.environ['LOCKSTEP_SEED']} repeats the seeds of this run"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Forbids programs and the network while modules of tests are imported: a fresh machine may have neither."""
    _collecting.append(session)
    try:
        return (yield)
    finally:
        _collecting.clear()
        gc.freeze()  # thousands of items, which stay
        gc.set_threshold(30_000, 20, 20)  # as the scheduler sets it


def _forbid_while_collecting(event: str, arguments: tuple[Any, ...]) -> None:
    if _collecting and event in OUTSIDE:
        what = f"{event}{arguments[:2]}"
        raise RuntimeError(
            f"{what} while tests are collected: call it in a test or a fixture, not on import"
        )


sys.addaudithook(_forbid_while_collecting)
