"""Places where objects name a queue. `make reference` writes the policy of the component `tenants` from this list,
which requires the verb `use` on every queue that is named in one of these places, and docs/reference/queue-names.md.

A place that ends in `queue` is this field, any other one stands for the annotation scheduling.volcano.sh/queue-name
there; `[]` stands for each entry of a list, `{}` for each value of a map. Kinds of --pod-groups are not known here.
"""

from central.kube.decode.gang_rules import WELL_KNOWN

OWN, TEMPLATE = "metadata", "spec.template.metadata"
_JOB = ("queue", "tasks[].template.metadata")  # in a Job's spec
_RAY = ("headGroupSpec.template.metadata", "workerGroupSpecs[].template.metadata")


def _inside(above: str, *places: str) -> tuple[str, ...]:
    return tuple(f"{above}.{each}" for each in places)


def _of_kubeflow(plural: str) -> tuple[str, ...]:
    key = "xgb" if plural == "xgboostjobs" else plural.removesuffix("jobs")
    return _inside(
        "spec", f"{key}ReplicaSpecs{{}}.template.metadata", "runPolicy.schedulingPolicy.queue"
    )


# The scheduler reads the queue in the object, or makes one from it in which it reads it.
READ: dict[str, tuple[str, ...]] = {
    "pods": (OWN,),
    "namespaces": (OWN,),
    "podgroups.scheduling.volcano.sh": ("spec.queue",),
    "podgroups.scheduling.k8s.io": (OWN,),
    "jobs.batch.volcano.sh": _inside("spec", *_JOB),
    "cronjobs.batch.volcano.sh": _inside("spec.jobTemplate.spec", *_JOB),
    "jobtemplates.flow.volcano.sh": _inside("spec", *_JOB),
    "jobflows.flow.volcano.sh": _inside("spec.flows[].patch.jobSpec", *_JOB),
    **dict.fromkeys(("replicasets.apps", "statefulsets.apps", "jobs.batch"), (OWN,)),
    **{rule.resource.full_name: (OWN,) for rule in WELL_KNOWN},
}
# Controllers copy the queue from here into such objects.
MADE_FROM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("replicasets.apps", "statefulsets.apps", "jobs.batch"), (TEMPLATE,)),
    **dict.fromkeys(("daemonsets.apps", "replicationcontrollers"), (TEMPLATE,)),
    "deployments.apps": (OWN, TEMPLATE),
    "cronjobs.batch": _inside("spec.jobTemplate", OWN, TEMPLATE),
    "jobsets.jobset.x-k8s.io": _inside("spec.replicatedJobs[].template", OWN, TEMPLATE),
    "leaderworkersets.leaderworkerset.x-k8s.io": _inside(
        "spec.leaderWorkerTemplate", "leaderTemplate.metadata", "workerTemplate.metadata"
    ),
    "rayclusters.ray.io": _inside("spec", *_RAY),
    "rayjobs.ray.io": (
        OWN,
        "spec.submitterPodTemplate.metadata",
        *_inside("spec.rayClusterSpec", *_RAY),
    ),
    "rayservices.ray.io": (OWN, *_inside("spec.rayClusterConfig", *_RAY)),
    "trainjobs.trainer.kubeflow.org": (OWN, "spec"),
    **{
        rule.resource.full_name: _of_kubeflow(rule.resource.plural)
        for rule in WELL_KNOWN
        if rule.resource.group == "kubeflow.org"
    },
}
