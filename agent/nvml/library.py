"""NVIDIA's library: where it lies, how it is opened, and what its refusals mean. It is called through
ctypes, so a call that hangs holds up one thread and no other."""

import _ctypes
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from agent.machine.facts import Unusable

LIBRARY = "libnvidia-ml.so.1"
# Where drivers and their containers put the library, below the host's root.
PLACES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "usr/local/nvidia/lib64",
)
# Answers that mean "not this GPU, not this driver": the fact stays untold.
UNTOLD = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
    pynvml.NVML_ERROR_UNKNOWN,
}

_lock = threading.Lock()  # of opening and closing: NVML counts how often it was initialised
_inside = 0  # threads between the two


class NvmlError(Unusable):
    """NVML can't be used on this machine as it is."""


@contextmanager
def opened(driver_root: str | Path | None = None) -> Iterator[None]:
    """NVML, initialised. Raises NvmlError; so does what is asked of it inside."""
    global _inside  # noqa: PLW0603  guarded by _lock, like pynvml's own count
    with _lock:
        _load(Path(driver_root) if driver_root else None)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            _forget()
            raise NvmlError(_trouble(error)) from error
        _inside += 1
    try:
        yield
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML stopped answering: {error}") from error
    finally:
        with _lock:
            _inside -= 1
            quiet(pynvml.nvmlShutdown)


def _load(root: Path | None) -> None:
    """By the loader's own path, which is where the container toolkit puts it; else below root."""
    if pynvml.nvmlLib is not None:
        return
    places = [LIBRARY, *(str(path) for path in _candidates(root))]
    problems = []
    for place in places:
        try:
            pynvml.nvmlLib = ctypes.CDLL(place)
        except OSError as error:
            if "cannot open shared object file" not in str(error):
                problems.append(str(error))  # it is there, and of another machine's kind
            continue
        return
    if problems:
        raise NvmlError(f"NVIDIA's library {LIBRARY} can't be loaded: {problems[0]}")
    where = f" or below {root}" if root else ""
    raise NvmlError(
        f"NVIDIA's library {LIBRARY} is not on the loader's path{where}: install the NVIDIA driver, "
        "name the host's root with --driver-root, or give a machine with --capture FILE"
    )


def _forget() -> None:
    """Another version of the driver may be installed meanwhile: the next read loads it anew. As long
    as the old library is there, the loader would find it by its name; it can't go while a thread is in it."""
    old, pynvml.nvmlLib = pynvml.nvmlLib, None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if old is not None and not _inside:
        _ctypes.dlclose(old._handle)


def _candidates(root: Path | None) -> list[Path]:
    if root is None:
        return []
    found = [_within(root, root / place / LIBRARY) for place in PLACES]
    return [path for path in found if path.exists()]


def _within(root: Path, path: Path) -> Path:
    """An absolute link on the host means a path below root here."""
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
        "are of different versions: reload the module, or reboot",
        pynvml.NVML_ERROR_NO_PERMISSION: "no permission to open the NVIDIA driver's devices",
    }
    return fix.get(error.value, f"NVML can't be initialised: {error}")


def told(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer; None where this GPU or driver has none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in UNTOLD:
            return None
        raise


def quiet(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None
