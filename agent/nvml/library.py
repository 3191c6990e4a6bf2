"""Finds, loads and initialises NVIDIA's library, and classifies its errors. ctypes releases the
interpreter lock during a call, so a call that hangs blocks only its own thread."""

import _ctypes
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import pynvml

from agent.bounded_files import exists
from agent.machine.facts import Unusable

LIBRARY = "libnvidia-ml.so.1"
# Where drivers and driver containers install the library, below the host's root.
FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",  # Debian; its links lead through /etc/alternatives
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "usr/local/nvidia/lib64",
)
# Answers that say nothing against the GPU: it, this driver, or the agent's rights do not cover the query.
UNSUPPORTED = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}
NEWEST_ERROR = pynvml.NVML_ERROR_RESET_TYPE_NOT_SUPPORTED

MOST_GPUS = 128  # that are asked, whatever the driver counts

_own = threading.local()  # .answers: of the queries of this thread, see recorded()
_lock = threading.Lock()  # guards initialisation and shutdown, which NVML counts
_inside = 0  # threads inside opened()


class NvmlError(Unusable):
    """NVML can't be used on this machine in its present state."""


class NoDriver(NvmlError):
    """The driver's library is nowhere: the driver is not installed."""


@contextmanager
def opened(driver_root: str | Path | None = None) -> Iterator[None]:
    """Initialises NVML for the block. Raises NvmlError, also for NVML errors inside the block."""
    global _inside  # noqa: PLW0603  guarded by _lock, like pynvml's own count
    with _lock:
        _initialise(Path(driver_root) if driver_root else None)
        _inside += 1
    try:
        yield
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML stopped answering: {error}") from error
    finally:
        with _lock:
            _inside -= 1
            try_query(pynvml.nvmlShutdown)


def _initialise(root: Path | None) -> None:
    """Initialises NVML with the library in use, else with that on the loader's path (where the container toolkit puts
    it), else with those below root. When the driver is replaced, the toolkit's mount keeps the old library for the
    life of the container, and the new one is below root. A library that finds no driver may belong to another place,
    too. Raises NvmlError."""
    problems: list[str] = []
    failures: list[Any] = []
    if pynvml.nvmlLib is not None and _works(failures):
        return
    for path in (LIBRARY, *map(str, _candidates(root))):
        try:
            pynvml.nvmlLib = ctypes.CDLL(path)
        except OSError as error:
            if "cannot open shared object file" not in str(error):
                problems.append(str(error))  # the file exists, but can't be loaded
            continue
        if _works(failures):
            return
    if failures:  # the first one, of a driver that is loaded if there is one
        said = min(failures, key=lambda each: each.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        raise NvmlError(_trouble(said)) from said
    if problems:
        raise NvmlError(f"could not load NVIDIA's library {LIBRARY}: {problems[0]}")
    where = f" or below {root}" if root else ""
    raise NoDriver(
        f"NVIDIA's library {LIBRARY} is not on the loader's path{where}: install the NVIDIA driver, "
        "set --driver-root to the host's root, or use --capture FILE"
    )


def _works(failures: list[Any]) -> bool:
    """Initialises NVML. Adds the error to the failures, and unloads the library, if that fails."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _forget()
        failures.append(error)
        return False
    return True


def _forget() -> None:
    """Unloads the library, because another version of the driver may be installed before the next
    read, and the loader would return the old library by its name. It stays while a thread uses it.
    """
    old, pynvml.nvmlLib = pynvml.nvmlLib, None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if old is not None and not _inside:
        _ctypes.dlclose(old._handle)


def _candidates(root: Path | None) -> list[Path]:
    if root is None:
        return []
    found = [_within(root, root / folder / LIBRARY) for folder in FOLDERS]
    return [path for path in found if exists(path)]


def _within(root: Path, path: Path) -> Path:
    """Resolves symbolic links; an absolute target is relative to root."""
    for _ in range(8):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return path


def _trouble(error: Any) -> str:
    fix = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: "
        "load the kernel module (modprobe nvidia), or reboot after installing it",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver's library and kernel module "
        "have different versions: reload the module, or reboot",
        pynvml.NVML_ERROR_NO_PERMISSION: "no permission to open the NVIDIA driver's devices",
    }
    return fix.get(error.value, f"could not initialise NVML: {error}")


class Answer(IntEnum):
    """The kind of answer that NVML gave; of several answers to one query the highest counts. FAULT means that the GPU
    is faulty. So does UNKNOWN if the GPU or an equal one had a value before (agent/machine/unanswered.py)."""

    UNSUPPORTED, VALUE, UNKNOWN, CORRUPT, DENIED, FAULT = range(6)


Answers = dict[
    str, Answer
]  # by the name of the query, with its numbers: nvmlDeviceGetNvLinkState(3)


def classify(error: int) -> Answer:
    """error: NVML's return code. One that is newer than the binding is UNKNOWN."""
    if error in UNSUPPORTED:
        return Answer.UNSUPPORTED
    if error in (pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_CORRUPTED_INFOROM):
        return Answer.DENIED if error == pynvml.NVML_ERROR_NO_PERMISSION else Answer.CORRUPT
    return Answer.FAULT if 0 < error <= NEWEST_ERROR else Answer.UNKNOWN


def query(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result; None if there is none and that is no fault, or if it is not text. Raises pynvml.NVMLError."""
    found, answer = None, Answer.VALUE
    try:
        found = call(*arguments)
    except pynvml.NVMLError as error:
        answer = classify(error.value)
        if answer is Answer.FAULT:
            raise
    except UnicodeDecodeError:  # the binding decodes texts
        return None
    numbers = [str(each) for each in arguments if isinstance(each, int)]
    name = call.__name__.lstrip("_") + (f"({', '.join(numbers)})" if numbers else "")
    known: Answers = getattr(_own, "answers", {})
    known[name] = max(answer, known.get(name, answer))
    return found


@contextmanager
def recorded() -> Iterator[Answers]:
    """Collects the answers to what query() asks in the block, and in this thread."""
    _own.answers = found = Answers()
    try:
        yield found
    finally:
        del _own.answers


def try_query(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result; None after any NVML error."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def device_count() -> int:
    """Raises pynvml.NVMLError."""
    return min(int(pynvml.nvmlDeviceGetCount()), MOST_GPUS)
