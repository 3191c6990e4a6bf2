"""Job plugins: what a Job's pods need to find each other, such as host names, SSH keys and variables of training
frameworks. A Job enables them in spec.plugins, as a map from names to arguments.

To add a plugin:

1. Write a module in this folder with the four names of plugin_api.JobPlugin: Options, check, objects, decorate.
   env.py is the smallest one, pytorch.py sets variables, svc.py creates objects.
2. Add it to PLUGINS below; its place there is its place in the order in which plugins run. If it builds on
   other plugins, add these to REQUIRES.
3. Test it in tests/central/controllers/job/test_plugins.py, and describe it in docs/reference.

If it creates a kind of object that no plugin has created before, central.kube.write.objects_writer and the
scheduler's ClusterRole must know that kind.

Design: docs/design/jobs.md
"""

from functools import lru_cache
from typing import Any

from central.controllers.job.plugins import (
    elastic,
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
from central.controllers.job.plugins.plugin_api import (
    BadArgument,
    JobPlugin,
    PluginObject,
    ignored_arguments,
    read_options,
)
from central.model import member_files
from central.model.jobspec import JobSpec, TaskSpec
from central.model.json_types import Json

__all__ = ["PluginObject", "check", "decorate", "enabled", "objects", "warnings"]

PluginArguments = tuple[tuple[str, tuple[str, ...]], ...]


# In the order in which they run. Each puts its variables before the existing ones, so that all others may refer
# to those of env, which runs last.
PLUGINS: dict[str, JobPlugin] = {
    "svc": svc,
    "ssh": ssh,
    "mpi": mpi,
    "ray": ray,
    "tensorflow": tensorflow,
    "pytorch": pytorch,
    "hcclrank": hcclrank,
    "topology": topology,
    "elastic": elastic,
    "env": env,
}
REQUIRES = {"mpi": ("svc", "ssh"), "ray": ("svc",), "tensorflow": ("svc",), "pytorch": ("svc",)}


@lru_cache(4096)
def _configured(named: PluginArguments) -> tuple[tuple[str, JobPlugin, Any], ...]:
    """The enabled plugins with their options. Raises BadArgument."""
    given = dict(named)
    for name in list(given):
        for other in REQUIRES.get(name, ()):
            given.setdefault(other, ())
    found = []
    for name, plugin in PLUGINS.items():
        if name in given:
            try:
                found.append((name, plugin, read_options(plugin.Options, given[name])))
            except BadArgument as error:
                raise BadArgument(f"spec.plugins.{name}: {error}") from error
    return tuple(found)


def enabled(job: JobSpec) -> tuple[str, ...]:
    """Names of the plugins that the Job lists, and of those that they require."""
    named = {name for name, _ in job.plugins}
    brought = {other for name in named for other in REQUIRES.get(name, ())}
    return tuple(name for name in PLUGINS if name in named | brought)


def check(job: JobSpec) -> str:
    """Returns the error in the Job's use of plugins; "" if there is none."""
    for name, _ in job.plugins:
        if name not in PLUGINS:
            known = ", ".join(sorted(PLUGINS))
            return f"spec.plugins.{name}: unknown plugin; known: {known}"
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


def warnings(job: JobSpec) -> tuple[str, ...]:
    """Returns a sentence for each ignored argument of the Job's plugins, for a Job that check() accepts."""
    return tuple(
        f"spec.plugins.{name}: {why}"
        for name, arguments in job.plugins
        for why in ignored_arguments(PLUGINS[name].Options, arguments)
    )


def _mount_conflict(job: JobSpec) -> str:
    """A template must not mount anything at the path of a plugin's files."""
    given = {name: options for name, _, options in _configured(job.plugins)}
    taken = {"svc": hosts.PATH} if "svc" in given else {}
    if "ssh" in given:
        taken["ssh"] = given["ssh"].ssh_key_file_path
    if "elastic" in given and given["elastic"].files:
        taken["elastic"] = member_files.PATH
    for task in job.tasks:
        spec = task.template["spec"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for mount in container.get("volumeMounts") or ():
                for name, path in taken.items():
                    if str(mount.get("mountPath")).rstrip("/") == path.rstrip("/"):
                        return (
                            f"spec.plugins.{name}: task {task.name} has another mount at {path}, "
                            "which the plugin needs for its files"
                        )
    return ""


def objects(job: JobSpec) -> tuple[PluginObject, ...]:
    """The objects to create beside the pods. The Job must have passed check."""
    return tuple(
        one
        for _, plugin, options in _configured(job.plugins)
        for one in plugin.objects(job, options)
    )


def decorate(job: JobSpec, task: TaskSpec, index: int, pod: Json) -> Json:
    """The pod's manifest with what all plugins add. The Job must have passed check."""
    for _, plugin, options in _configured(job.plugins):
        pod = plugin.decorate(job, task, index, options, pod)
    return pod
