"""lockstep-agent gpu-setup."""

import argparse
import signal
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.machine.facts import Unusable
from protos import logs

if TYPE_CHECKING:
    from agent.gpu_setup.manager import GpuSetupManager

AGAIN_S = 1.0  # where another keeper is still there


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sharing-dir", type=Path, required=True, metavar="DIR", help="that of the agent"
    )
    parser.add_argument(
        "--driver-root",
        type=Path,
        metavar="DIR",
        help="where to look for libnvidia-ml.so.1, nvidia-cuda-mps-control and nvidia-smi besides the path",
    )
    parser.add_argument(
        "--one-user",
        action="store_true",
        help="clients of another user than the first one's wait until those have ended; for drivers "
        "whose nvidia-cuda-mps-control does not know -M",
    )
    logs.add_arguments(parser)


def run(given: argparse.Namespace) -> int:
    """Until a signal. What clients use goes on without us. Raises Unusable."""
    from agent.gpu_setup.manager import GpuSetupManager  # the other commands do without it
    from agent.sharing.setup_requests import SetupRequests

    logs.configure(given.log_level, given.log_format)
    stop, ended = threading.Event(), SimpleQueue[BaseException | None]()
    keeper = GpuSetupManager(
        SetupRequests(given.sharing_dir), given.driver_root, multi_user=not given.one_user
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.put(None))
    work = threading.Thread(target=_work, args=(keeper, stop, ended), name="keeper", daemon=True)
    work.start()
    failure = ended.get()
    stop.set()
    keeper.wake()
    work.join(2.0)
    if isinstance(failure, OSError):
        raise Unusable(f"{failure.filename or given.sharing_dir}: {failure.strerror}") from failure
    if failure is not None:
        raise failure
    return 0


def _work(
    keeper: "GpuSetupManager", stop: threading.Event, ended: "SimpleQueue[BaseException | None]"
) -> None:
    try:
        while not stop.is_set():
            keeper.run(stop)
            stop.wait(AGAIN_S)
    except BaseException as error:  # noqa: BLE001  it is raised by who waits
        ended.put(error)
