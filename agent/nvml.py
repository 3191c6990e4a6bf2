"""NVML -> raw facts. The only file that imports pynvml, which calls the driver's own library
through ctypes. What a GPU or a driver does not support stays untold; what does not work at all is
one sentence."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from agent.machine import Fabric, GpuFacts, NvLink, NvmlFacts, Unusable

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
P2P_NVLINK = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
REMOTE = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "npu",
}
WORD = 64  # bits of one element of an affinity mask
SET_WORDS = 32

_lock = threading.Lock()  # NVML's initialisation counts; one reader at a time


class NvmlError(Unusable):
    """NVML can't be used on this machine as it is."""


def read(driver_root: str | Path | None = None) -> NvmlFacts:
    """Every GPU that the driver knows. Raises NvmlError."""
    with _lock:
        _load(Path(driver_root) if driver_root else None)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            _forget()
            raise NvmlError(_trouble(error)) from error
        try:
            return _read()
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML stopped answering: {error}") from error
        finally:
            _told(pynvml.nvmlShutdown)


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
    """Another version of the driver may be installed meanwhile: the next read loads it anew."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


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


def _told(call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer; None where this GPU or driver has none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in UNTOLD:
            return None
        raise


def _read() -> NvmlFacts:
    handles: list[Any] = []
    faults: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
            faults.append("")
        except pynvml.NVMLError as error:
            handles.append(None)
            faults.append(f"NVML can't reach it: {error}")
    cuda = _told(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return NvmlFacts(
        driver_version=_told(pynvml.nvmlSystemGetDriverVersion) or "",
        nvml_version=_told(pynvml.nvmlSystemGetNVMLVersion) or "",
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        gpus=tuple(_gpu(index, handles, fault) for index, fault in enumerate(faults)),
    )


def _gpu(index: int, handles: list[Any], fault: str) -> GpuFacts:
    handle = handles[index]
    if handle is None:
        return GpuFacts(index=index, fault=fault)
    try:
        return _healthy_gpu(index, handle, handles)
    except pynvml.NVMLError as error:
        # It fell off the bus, or needs a reset: its identity often still answers.
        return GpuFacts(
            index=index,
            uuid=_quiet(pynvml.nvmlDeviceGetUUID, handle) or "",
            model=_quiet(pynvml.nvmlDeviceGetName, handle) or "",
            pci=_address(_quiet(pynvml.nvmlDeviceGetPciInfo, handle)),
            minor=_or(_quiet(pynvml.nvmlDeviceGetMinorNumber, handle), -1),
            fault=f"NVML can't read it: {error}",
        )


def _healthy_gpu(index: int, handle: Any, handles: list[Any]) -> GpuFacts:
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    capability = _told(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _told(pynvml.nvmlDeviceGetMigMode, handle)
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuFacts(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        model=_told(pynvml.nvmlDeviceGetName, handle) or "",
        pci=_address(info),
        device_id=info.pciDeviceId,
        minor=_or(_told(pynvml.nvmlDeviceGetMinorNumber, handle), -1),
        serial=_told(pynvml.nvmlDeviceGetSerial, handle) or "",
        module_id=_or(_told(pynvml.nvmlDeviceGetModuleId, handle), -1),
        capability=f"{capability[0]}.{capability[1]}" if capability else "",
        memory_bytes=memory.total if memory else 0,
        memory_numa=_or(_told(pynvml.nvmlDeviceGetNumaNodeId, handle), -1),
        cpu_affinity=_mask(_told(pynvml.nvmlDeviceGetCpuAffinityWithinScope, handle, SET_WORDS, 0)),
        memory_affinity=_mask(_told(pynvml.nvmlDeviceGetMemoryAffinity, handle, SET_WORDS, 0)),
        mig=bool(mig and mig[0]),
        nvlinks=_nvlinks(handle),
        p2p_nvlink=tuple(
            _peer(handles, index, peer, pynvml.nvmlDeviceGetP2PStatus, P2P_NVLINK)
            for peer in range(len(handles))
        ),
        ancestors=tuple(
            _peer(handles, index, peer, pynvml.nvmlDeviceGetTopologyCommonAncestor)
            for peer in range(len(handles))
        ),
        fabric=_fabric(handle),
    )


def _quiet(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _peer(handles: list[Any], index: int, peer: int, call: Callable[..., Any], *more: Any) -> int:
    """A row's entry; -1 for itself, for a peer that is gone, and where it is not told."""
    if peer == index or handles[peer] is None:
        return -1
    return _or(_quiet(call, handles[index], handles[peer], *more), -1)


def _nvlinks(handle: Any) -> tuple[NvLink, ...]:
    links = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            active = pynvml.nvmlDeviceGetNvLinkState(handle, link) == 1
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break  # past the last
            if error.value in UNTOLD:
                continue
            raise
        if not active:
            links.append(NvLink(link, active=False))
            continue
        remote = _told(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        address = _address(_told(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
        links.append(NvLink(link, True, REMOTE.get(remote, ""), address))
    return tuple(links)


def _fabric(handle: Any) -> Fabric | None:
    """The newest form that the driver knows."""
    for make in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = make()
        if _told(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
            continue
        return Fabric(
            state=info.state,
            status=info.status,
            cluster_uuid=bytes(info.clusterUuid).hex(),
            clique_id=info.cliqueId,
            health=getattr(info, "healthSummary", 0),
        )
    return None


def _address(info: Any) -> str:
    """NVML writes eight digits of domain, sysfs at least four. Empty where the far end of a link
    has no name, or one that stands for none (fffffff:ffff:ff)."""
    text = info.busId if info else b""
    parts = (text.decode() if isinstance(text, bytes) else text).lower().split(":")
    if len(parts) != 3 or "." not in parts[2]:
        return ""
    domain, bus, function = parts
    return f"{int(domain, 16):04x}:{bus}:{function}"


def _mask(words: Any) -> str:
    """An affinity mask as the kernel writes lists: 0-55,112-167."""
    if words is None:
        return ""
    mask = sum(word << WORD * place for place, word in enumerate(words))
    ranges: list[str] = []
    start = 0
    while mask >> start:
        start += ((mask >> start) & -(mask >> start)).bit_length() - 1
        length = (~(mask >> start) & ((mask >> start) + 1)).bit_length() - 1
        ranges.append(str(start) if length == 1 else f"{start}-{start + length - 1}")
        start += length
    return ",".join(ranges)
