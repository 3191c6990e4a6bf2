"""Reads the raw facts of all GPUs from NVML. A value that the GPU or the driver does not support
keeps its default; a GPU that can't be read has `fault` set to the reason."""

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from agent.machine import unanswered
from agent.machine.facts import Fabric, GpuFacts, NvLink, NvmlFacts, Platform, Wear
from agent.nvml import mig_devices
from agent.nvml.library import Answer, Answers, device_count, opened, query, recorded, try_query

P2P_NVLINK = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
REMOTE = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "npu",
}
UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
LIMITED = pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")
WORD_BITS = 64  # of one element of an affinity mask
SET_WORDS = 32


def read(driver_root: str | Path | None = None) -> NvmlFacts:
    """Every GPU that the driver knows. Raises NvmlError."""
    with opened(driver_root):
        return _read()


def _read() -> NvmlFacts:
    handles: list[Any] = []
    faults: list[str] = []
    for index in range(device_count()):
        try:
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
            faults.append("")
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break  # past the last GPU, whatever the driver counts
            handles.append(None)
            faults.append(f"NVML can't reach it: {error}")
    cuda = query(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return NvmlFacts(
        driver_version=query(pynvml.nvmlSystemGetDriverVersion) or "",
        nvml_version=query(pynvml.nvmlSystemGetNVMLVersion) or "",
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        gpus=unanswered.beside([_gpu(index, handles, fault) for index, fault in enumerate(faults)]),
    )


def _gpu(index: int, handles: list[Any], fault: str) -> GpuFacts:
    handle = handles[index]
    if handle is None:
        return GpuFacts(index=index, fault=fault)
    try:
        with recorded() as answers:
            found = _healthy_gpu(index, handle, handles)
        return _with_answers(found, answers)
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        # A GPU that fell off the bus or needs a reset often still reports its identity.
        return GpuFacts(
            index=index,
            uuid=try_query(pynvml.nvmlDeviceGetUUID, handle) or "",
            model=try_query(pynvml.nvmlDeviceGetName, handle) or "",
            pci=_address(try_query(pynvml.nvmlDeviceGetPciInfo, handle)),
            minor=_or(try_query(pynvml.nvmlDeviceGetMinorNumber, handle), -1),
            fault=f"NVML can't read it: {error}",
        )


def _with_answers(gpu: GpuFacts, answers: Answers) -> GpuFacts:
    def queries(answer: Answer) -> tuple[str, ...]:
        return tuple(sorted(name for name, each in answers.items() if each is answer))

    return replace(
        gpu,
        denied=tuple(sorted({name.partition("(")[0] for name in queries(Answer.DENIED)})),
        corrupt=queries(Answer.CORRUPT),
        answered=queries(Answer.VALUE),
        unknown=queries(Answer.UNKNOWN),
        integrated="nvmlDeviceGetMemoryInfo" in queries(Answer.UNSUPPORTED),
    )


def _healthy_gpu(index: int, handle: Any, handles: list[Any]) -> GpuFacts:
    info = query(pynvml.nvmlDeviceGetPciInfo, handle)  # Jetson has no PCI addresses
    capability = query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig, mig_change = mig_devices.mode(handle)
    memory = query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuFacts(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        model=query(pynvml.nvmlDeviceGetName, handle) or "",
        pci=_address(info),
        device_id=info.pciDeviceId if info else 0,
        minor=_or(query(pynvml.nvmlDeviceGetMinorNumber, handle), -1),
        serial=query(pynvml.nvmlDeviceGetSerial, handle) or "",
        module_id=_or(query(pynvml.nvmlDeviceGetModuleId, handle), -1),
        capability=f"{capability[0]}.{capability[1]}" if capability else "",
        memory_bytes=memory.total if memory else 0,
        memory_numa=_or(query(pynvml.nvmlDeviceGetNumaNodeId, handle), -1),
        cpu_affinity=_mask(query(pynvml.nvmlDeviceGetCpuAffinityWithinScope, handle, SET_WORDS, 0)),
        memory_affinity=_mask(query(pynvml.nvmlDeviceGetMemoryAffinity, handle, SET_WORDS, 0)),
        mig=mig,
        mig_change=mig_change,
        slices=mig_devices.read(handle) if mig else (),
        nvlinks=_nvlinks(handle),
        p2p_nvlink=tuple(
            _peer(handles, index, peer, pynvml.nvmlDeviceGetP2PStatus, P2P_NVLINK)
            for peer in range(len(handles))
        ),
        ancestors=tuple(
            _peer(handles, index, peer, pynvml.nvmlDeviceGetTopologyCommonAncestor)
            for peer in range(len(handles))
        ),
        pcie_generation=query(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle) or 0,
        pcie_width=query(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or 0,
        fabric=_fabric(handle),
        platform=_platform(handle),
        wear=_wear(handle),
        clock_events=_clock_events(handle),
    )


def _clock_events(handle: Any) -> int:
    """Drivers before 535 know the call by its older name only."""
    found = query(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if found is None:
        found = query(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return found or 0


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _peer(handles: list[Any], index: int, peer: int, call: Callable[..., Any], *more: Any) -> int:
    """One entry of a row by peer; -1 for the GPU itself, an unreachable peer or an unsupported
    query."""
    if peer == index or handles[peer] is None:
        return -1
    return _or(try_query(call, handles[index], handles[peer], *more), -1)


def _nvlinks(handle: Any) -> tuple[NvLink, ...]:
    links = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = query(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if active is None:
            continue  # past the last link, or not reported
        if not active:
            links.append(NvLink(link, active=False))
            continue
        remote = query(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        address = _address(query(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
        links.append(NvLink(link, True, REMOTE.get(remote, ""), address))
    return tuple(links)


def _fabric(handle: Any) -> Fabric | None:
    """Reads the fabric in the newest version of the structure that the driver supports; None if it supports none."""
    for make in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = make()
        if query(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
            continue
        return Fabric(
            state=info.state,
            status=info.status,
            cluster_uuid=bytes(info.clusterUuid).hex(),
            clique_id=info.cliqueId,
            health=getattr(info, "healthSummary", 0)
            or (LIMITED if info.healthMask & 3 == 1 else 0),
        )
    return None


def _platform(handle: Any) -> Platform | None:
    info = pynvml.c_nvmlPlatformInfo_v2_t()
    if query(pynvml.nvmlDeviceGetPlatformInfo, handle, ctypes.byref(info)) is None:
        return None
    # The binding declares all fields as characters, so they are read by their offsets.
    raw = ctypes.string_at(ctypes.addressof(info), ctypes.sizeof(info))
    serial = raw[20:36].split(b"\0")[0].decode("ascii", "replace").strip()
    slot, tray, host, _, module = raw[36:41]
    return Platform(serial, slot, tray, host, module)


def _address(info: Any) -> str:
    """The address as sysfs writes it: NVML's domain has eight digits, that of sysfs four. Empty
    where the remote end of a link has no address, or the placeholder fffffff:ffff:ff."""
    try:
        text = info.busId if info else b""
        found = ADDRESS.fullmatch((text.decode() if isinstance(text, bytes) else text).lower())
    except UnicodeDecodeError:
        return ""
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def _mask(words: Any) -> str:
    """An affinity mask in the kernel's list format: 0-55,112-167."""
    if words is None:
        return ""
    mask = sum(word << WORD_BITS * position for position, word in enumerate(words))
    ranges: list[str] = []
    start = 0
    while mask >> start:
        start += ((mask >> start) & -(mask >> start)).bit_length() - 1
        length = (~(mask >> start) & ((mask >> start) + 1)).bit_length() - 1
        ranges.append(str(start) if length == 1 else f"{start}-{start + length - 1}")
        start += length
    return ",".join(ranges)


def _wear(handle: Any) -> Wear:
    rows = query(pynvml.nvmlDeviceGetRemappedRows, handle)
    return Wear(
        ecc_volatile=_or(query(_ecc, handle, pynvml.NVML_VOLATILE_ECC), -1),
        ecc_aggregate=_or(query(_ecc, handle, pynvml.NVML_AGGREGATE_ECC), -1),
        rows_remapped=rows[1] if rows else 0,
        rows_pending=bool(rows and rows[2]),
        rows_failed=bool(rows and rows[3]),
        pages_pending=bool(query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)),
        recovery=_or(query(_recovery, handle), -1),
    )


def _ecc(handle: Any, counter: int) -> int:
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, counter))


def _recovery(handle: Any) -> int:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION])[0]
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)
