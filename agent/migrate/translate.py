"""Translates the configuration of other device plugins. Pure.

NVIDIA's device plugin has one policy for all GPUs of a node: that many replicas of each, in time
slices or with MPS, and a request is for replicas. Here a GPU is shared in hundredths, the policy is
per GPU, and a pod asks for the hundredths that it needs. So one of N replicas becomes 100/N
hundredths, rounded down so that N of them fit.

HAMi's pods ask for a number of GPUs, and for memory (MiB) and cores (per cent) of each.

What has no equivalent is named, each setting and each request: nothing is left out in silence."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from agent.machine.facts import Unusable
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_MEMORY, GPU_SHARE, MIG

COUNT = re.compile(r"[0-9]{1,15}")
Json = Mapping[str, Any]
MOST_REPLICAS = WHOLE
HAMI_MEMORY, HAMI_PERCENT = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
HAMI_CORES, HAMI_PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"
HAMI = (HAMI_MEMORY, HAMI_PERCENT, HAMI_CORES, HAMI_PRIORITY)
# Annotations of HAMi that choose GPUs, and what takes their place.
CHOICES = {
    "nvidia.com/use-gputype": "use the annotation lockstep.dev/gpu-model",
    "nvidia.com/nouse-gputype": "name the other models in lockstep.dev/gpu-model",
    "nvidia.com/use-gpuuuid": "the scheduler chooses GPUs; nothing names one",
    "nvidia.com/nouse-gpuuuid": "set the GPU to `whole` in the ConfigMap lockstep-sharing",
    "nvidia.com/vgpu-mode": "set the mode of GPUs in the ConfigMap lockstep-sharing",
    "nvidia.com/numa-bind": 'use lockstep.dev/topology-required: "numa"',
    "hami.io/gpu-scheduler-policy": "--placement pack or spread of the scheduler",
    "hami.io/node-scheduler-policy": "--placement pack or spread of the scheduler",
}


# Settings of NVIDIA's plugin that are translated, or need none here, by the start of their path.
KNOWN = (
    "version",
    "flags.migStrategy",
    "flags.failOnInitError",
    "flags.nvidiaDriverRoot",
    "flags.nvidiaDevRoot",
    "flags.deviceDiscoveryStrategy",
    "flags.useNodeFeatureAPI",
    "flags.gfd",
    "flags.mpsRoot",
    "flags.plugin.passDeviceSpecs",
    "flags.plugin.deviceListStrategy",
    "flags.plugin.deviceIDStrategy",
    "flags.plugin.nvidiaCTKPath",
    "flags.plugin.containerDriverRoot",
    "imex.channelIDs",
    "resources",
    "sharing.mps",
    "sharing.timeSlicing",
)
# Prefixes of resources by which other plugins offer GPUs or parts of them.
OF_PLUGINS = (
    "nvidia.com/",
    "volcano.sh/vgpu",
    "aliyun.com/gpu",
    "tencent.com/vcuda",
    "koordinator.sh/gpu",
)
OFFERED = re.compile(
    rf"{re.escape(GPU)}|{re.escape(MIG)}[^/]+(?<!\.shared)"
)  # by Lockstep, under the same name


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """The settings of Lockstep that replace a configuration of NVIDIA's device plugin."""

    sharing: str  # for the ConfigMap lockstep-sharing; empty: GPUs are whole
    share: int  # hundredths that stand for one replica; 0: not shared
    resource: str  # that pods ask for until now
    components: tuple[str, ...]  # of daemonset/components to add
    flags: tuple[str, ...]  # of the agent to add
    notes: tuple[str, ...]  # what changes
    lost: tuple[str, ...] = ()  # what has no equivalent


def plugin_config(config: Json, name: str) -> PluginConfig:
    """A parsed configuration file of NVIDIA's device plugin, version v1. Raises Unusable."""
    if config.get("version") != "v1":
        raise Unusable(f'{name}: version: must be "v1", as NVIDIA\'s device plugin reads it')
    flags = _object(config.get("flags"), f"{name}: flags")
    sharing = _object(config.get("sharing"), f"{name}: sharing")
    notes: list[str] = []
    lost: list[str] = []
    components: list[str] = []
    mode, share, resource = _shared(sharing, f"{name}: sharing", notes, lost)
    if mode == "mps":
        components.append("mps")
    if _strategy(flags, lost):
        components.append("mig")
    plugin = _object(flags.get("plugin"), f"{name}: flags.plugin")
    how = plugin.get("deviceListStrategy") or ()
    if any("cdi" in str(each) for each in (how if isinstance(how, list) else [how])):
        components.append("cdi")
    added = []
    channels = _object(config.get("imex"), f"{name}: imex").get("channelIDs")
    if channels:
        added.append("--imex-channel=0")
    if config.get("resources"):
        notes.append("resources: patterns for resource names have no equivalent (nor effect there)")
    text = {"": "", "mps": "all: mps", "time": "all"}[mode]
    lost += [
        f"{path}: {str(value)[:40]}"
        for path, value in _settings(config, "")
        if value and not path.startswith(KNOWN)
    ]
    return PluginConfig(
        text, share, resource, tuple(components), tuple(added), tuple(notes), tuple(lost)
    )


def _settings(part: Json, path: str) -> Iterator[tuple[str, object]]:
    for key, value in part.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _strategy(flags: Json, lost: list[str]) -> bool:
    strategy = flags.get("migStrategy", "none")
    if strategy == "single":
        lost.append(
            "flags.migStrategy single: slices are offered as nvidia.com/mig-PROFILE, not as "
            f"{GPU}: change the pods"
        )
    return strategy in ("single", "mixed")


def _shared(sharing: Json, name: str, notes: list[str], lost: list[str]) -> tuple[str, int, str]:
    """Mode, hundredths for a replica, and the resource that pods ask for."""
    found = ("", 0, GPU)
    for key, mode in (("mps", "mps"), ("timeSlicing", "time")):
        part = _object(sharing.get(key), f"{name}.{key}")
        rows = part.get("resources") or ()
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise Unusable(f"{name}.{key}.resources: must be a list")
        for place, given in enumerate(rows):
            where = f"{name}.{key}.resources[{place}]"
            row = _object(given, where)
            resource, replicas = str(row.get("name", "")), row.get("replicas")
            if type(replicas) is not int or not replicas >= 2:
                raise Unusable(f"{where}.replicas: must be a number of at least 2")
            if resource != GPU:
                lost.append(f"{where}: {resource} is not shared here; only whole GPUs are")
                continue
            if found[0]:
                lost.append(f"{where}: a second policy for {GPU}; the first one is translated")
                continue
            if replicas > MOST_REPLICAS:
                lost.append(f"{where}: {replicas} replicas; a GPU has {WHOLE} hundredths")
            if row.get("devices", "all") != "all":
                lost.append(
                    f"{where}.devices: {str(row['devices'])[:40]}: name these GPUs in the ConfigMap "
                    "lockstep-sharing, others are whole"
                )
            renamed = bool(row.get("rename")) or bool(part.get("renameByDefault"))
            if part.get("failRequestsGreaterThanOne") is False:
                notes.append(
                    f"{where}: a request for several replicas becomes several times the share, on "
                    "one GPU"
                )
            renamed_to = str(row.get("rename") or f"{GPU}.shared")
            found = (mode, max(1, WHOLE // replicas), renamed_to if renamed else GPU)
    return found


def _object(value: object, where: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(f"{where}: must be an object")
    return value


@dataclass(frozen=True, slots=True)
class PodChange:
    """The request of one container, or an annotation of the pod, before and after the migration."""

    where: str  # such as containers[main]
    before: str
    after: str
    lost: bool = False  # there is no equivalent; `after` says what to do


def pod(manifest: Json, replica: PluginConfig | None, gpu_mib: int) -> Iterator[PodChange]:
    """The changes for a pod's manifest. replica: how NVIDIA's plugin shared GPUs. gpu_mib: the memory
    of one GPU in MiB, 0 if unknown. Raises Unusable."""
    meta = _object(manifest.get("metadata"), "metadata")
    spec = _object(manifest.get("spec"), "spec")
    for name, instead in CHOICES.items():
        if name in _object(meta.get("annotations"), "metadata.annotations"):
            yield PodChange("metadata.annotations", name, instead)
    if spec.get("resourceClaims"):
        yield PodChange(
            "spec.resourceClaims",
            "claims",
            f"served by a DRA driver alone: without one request {GPU}",
            lost=True,
        )
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind) or ()
        if not isinstance(containers, list | tuple):
            raise Unusable(f"spec.{kind}: must be a list")
        for container in containers:
            where = f"{kind}[{_object(container, kind).get('name', '')}]"
            resources = _object(container.get("resources"), where)
            amounts = {
                **_object(resources.get("requests"), f"{where}.resources.requests"),
                **_object(resources.get("limits"), f"{where}.resources.limits"),
            }
            yield from _container(amounts, where, replica, gpu_mib)


def _container(
    amounts: Json, where: str, replica: PluginConfig | None, gpu_mib: int
) -> Iterator[PodChange]:
    known: tuple[str, ...] = ()
    if any(name in amounts for name in HAMI):
        known = HAMI
        yield from _of_hami(amounts, where, gpu_mib)
    elif replica and replica.share and (count := _number(amounts, replica.resource, where)):
        known = (replica.resource,)
        most = min(WHOLE, replica.share * count)
        yield PodChange(where, f"{replica.resource}: {count}", f"{GPU_SHARE}: {most}")
    for name, amount in amounts.items():
        if name.startswith(OF_PLUGINS) and name not in known and not OFFERED.fullmatch(name):
            instead = f"no such resource here: request {GPU}, {MIG}PROFILE or {GPU_SHARE}"
            if name.endswith(".shared"):
                instead = (
                    f"{instead}; with the plugin's configuration among the files it is translated"
                )
            yield PodChange(where, f"{name}: {str(amount)[:40]}", instead, lost=True)


def _of_hami(limits: Json, where: str, gpu_mib: int) -> Iterator[PodChange]:
    count = _number(limits, GPU, where) or 1
    if count > 1:
        yield PodChange(
            where,
            f"{GPU}: {count}",
            "shares of several GPUs are not possible: use whole GPUs",
            lost=True,
        )
        return
    mib, percent = _number(limits, HAMI_MEMORY, where), _number(limits, HAMI_PERCENT, where)
    cores = _number(limits, HAMI_CORES, where)
    of_memory = ceil(WHOLE * mib / gpu_mib) if mib and gpu_mib else percent
    share = min(WHOLE, max(cores, of_memory))
    before = ", ".join(f"{name}: {limits[name]}" for name in (GPU, *HAMI) if name in limits)
    if share:
        yield PodChange(where, before, f"{GPU_SHARE}: {share}")
    else:
        why = "a number of hundredths (of how many MiB one GPU has: --gpu-memory)"
        yield PodChange(where, before, f"{GPU_SHARE}: {why}")
    if mib:
        yield PodChange("metadata.annotations", f"{HAMI_MEMORY}: {mib}", f"{GPU_MEMORY}: {mib}Mi")
    if HAMI_PRIORITY in limits:
        yield PodChange(
            where, HAMI_PRIORITY, "no equivalent between the processes of one GPU", lost=True
        )


def _number(limits: Json, name: str, where: str) -> int:
    """0 if it is absent."""
    value = limits.get(name, 0)
    text = str(value) if isinstance(value, str | int) else ""
    if not COUNT.fullmatch(text):
        raise Unusable(f'{where}.resources.limits: {name}: "{text[:40]}" is not a whole number')
    return int(text)
