"""The command `lockstep-agent gpu-setup`."""

import argparse
import signal
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.machine.facts import Unusable
from protos.common import logs, signal_wait

if TYPE_CHECKING:
    from agent.gpu_setup.manager import GpuSetupManager

RETRY_S = 1.0  # between attempts while another gpu-setup holds the directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sharing-dir", type=Path, required=True, metavar="DIR", help="the agent's --sharing-dir"
    )
    parser.add_argument(
        "--driver-root",
        type=Path,
        metavar="DIR",
        help="root of the driver installation, searched for libnvidia-ml.so.1, "
        "nvidia-cuda-mps-control and nvidia-smi after the path",
    )
    parser.add_argument(
        "--one-user",
        action="store_true",
        help="serve one user's clients at a time; for drivers whose nvidia-cuda-mps-control does "
        "not support -M",
    )
    logs.add_arguments(parser)


def run(given: argparse.Namespace) -> int:
    """Runs until a signal. MPS daemons keep running for their clients. Raises Unusable."""
    from agent.gpu_setup.manager import GpuSetupManager  # the other commands do not need it
    from agent.sharing.setup_requests import SetupRequests

    logs.configure(given.log_level, given.log_format)
    stop, ended = threading.Event(), SimpleQueue[BaseException | None]()
    manager = GpuSetupManager(
        SetupRequests(given.sharing_dir), given.driver_root, multi_user=not given.one_user
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.put(None))
    work = threading.Thread(
        target=_work, args=(manager, stop, ended), name="gpu-setup", daemon=True
    )
    work.start()
    failure = signal_wait.next_item(ended)
    stop.set()
    manager.wake()
    work.join(2.0)
    if isinstance(failure, OSError):
        raise Unusable(f"{failure.filename or given.sharing_dir}: {failure.strerror}") from failure
    if failure is not None:
        raise failure
    return 0


def _work(
    manager: "GpuSetupManager", stop: threading.Event, ended: "SimpleQueue[BaseException | None]"
) -> None:
    try:
        while not stop.is_set():
            manager.run(stop)
            stop.wait(RETRY_S)
    except BaseException as error:  # noqa: BLE001  run() raises it again
        ended.put(error)
