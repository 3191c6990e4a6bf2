"""What makes a job's pods find each other. Each plugin is a module of pure functions over the job, and
all of them run in one order, whatever order the job names them in.

    check(job)                      what is wrong with the plugins that it names, or ""
    wanted(job)                     those that it names, and those that these bring
    objects(job)                    what is made beside the pods, owned by the job
    decorate(job, task, index, pod) a pod's manifest with all that they add
"""

from functools import lru_cache
from typing import Any, Protocol

from central.controllers.job.plugins import (
    arguments,
    env,
    hcclrank,
    hosts,
    mpi,
    pytorch,
    ray,
    ssh,
    svc,
    tensorflow,
    topology,
)
from central.controllers.job.plugins.arguments import BadArgument
from central.controllers.job.plugins.plugin_objects import PluginObject
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

__all__ = ["PluginObject", "check", "decorate", "enabled", "objects"]

PluginArguments = tuple[tuple[str, tuple[str, ...]], ...]


class JobPlugin(Protocol):
    @property
    def Options(self) -> type[Any]: ...  # noqa: N802  # a module's class
    def check(self, job: JobSpec, options: Any) -> None: ...
    def objects(self, job: JobSpec, options: Any) -> tuple[PluginObject, ...]: ...
    def decorate(
        self, job: JobSpec, task: TaskSpec, index: int, options: Any, pod: Json
    ) -> Json: ...


# In the order in which they run. Each puts its variables before those that are there already: all may
# speak of the pod's number.
PLUGINS: dict[str, JobPlugin] = {
    "svc": svc,
    "ssh": ssh,
    "mpi": mpi,
    "ray": ray,
    "tensorflow": tensorflow,
    "pytorch": pytorch,
    "hcclrank": hcclrank,
    "topology": topology,
    "env": env,
}
REQUIRES = {
    "mpi": ("svc", "ssh"),
    "ray": ("svc",),
    "tensorflow": ("svc",),
    "pytorch": ("svc",),
}


@lru_cache(4096)
def _configured(named: PluginArguments) -> tuple[tuple[str, JobPlugin, Any], ...]:
    """With their arguments read. Raises Wrong."""
    given = dict(named)
    for name in list(given):
        for other in REQUIRES.get(name, ()):
            given.setdefault(other, ())
    found = []
    for name, plugin in PLUGINS.items():
        if name in given:
            try:
                found.append((name, plugin, arguments.read(plugin.Options, given[name])))
            except BadArgument as error:
                raise BadArgument(f"spec.plugins.{name}: {error}") from error
    return tuple(found)


def enabled(job: JobSpec) -> tuple[str, ...]:
    named = {name for name, _ in job.plugins}
    brought = {other for name in named for other in REQUIRES.get(name, ())}
    return tuple(name for name in PLUGINS if name in named | brought)


def check(job: JobSpec) -> str:
    for name, _ in job.plugins:
        if name not in PLUGINS:
            there = ", ".join(sorted(PLUGINS))
            return f"spec.plugins.{name}: there is no such plugin; there are {there}"
    try:
        plugins = _configured(job.plugins)
    except BadArgument as error:
        return str(error)
    for name, plugin, options in plugins:
        try:
            plugin.check(job, options)
        except BadArgument as error:
            return f"spec.plugins.{name}: {error}"
    return _mount_conflict(job)


def _mount_conflict(job: JobSpec) -> str:
    """Where a template mounts something itself at a place where a plugin's files belong."""
    given = {name: options for name, _, options in _configured(job.plugins)}
    taken = {"svc": hosts.PATH} if "svc" in given else {}
    if "ssh" in given:
        taken["ssh"] = given["ssh"].ssh_key_file_path
    for task in job.tasks:
        spec = task.template["spec"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for mount in container.get("volumeMounts") or ():
                for name, path in taken.items():
                    if str(mount.get("mountPath")).rstrip("/") == path.rstrip("/"):
                        return (
                            f"spec.plugins.{name}: task {task.name} mounts something else at "
                            f"{path}, where its files belong"
                        )
    return ""


def objects(job: JobSpec) -> tuple[PluginObject, ...]:
    """Of a job that check finds nothing wrong with."""
    return tuple(
        one
        for _, plugin, options in _configured(job.plugins)
        for one in plugin.objects(job, options)
    )


def decorate(job: JobSpec, task: TaskSpec, index: int, pod: Json) -> Json:
    """Of a job that check finds nothing wrong with. The pod that is given stays as it is."""
    for _, plugin, options in _configured(job.plugins):
        pod = plugin.decorate(job, task, index, options, pod)
    return pod
