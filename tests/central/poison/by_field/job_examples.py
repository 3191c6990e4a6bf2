"""Jobs, CronJobs, Commands, JobFlows and HyperNodes, rich and valid. See examples.py."""

from collections.abc import Callable

from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container
from tests.central.poison import generator
from tests.central.poison.generator import WHEN

Example = Callable[[], Json]


ELASTIC_NOTES = {
    names.ELASTIC_MIN: "1",
    names.ELASTIC_MAX: "4",
    names.ELASTIC_STEP: "1",
    names.ELASTIC_OBJECTIVE: "goodput",
    names.ELASTIC_ASK: "pods",
    names.SPEED: "1:1 2:1.9 4:3.5",
    names.RESIZE_COST: "40s",
    names.WORK_LEFT: "18000 steps",
    names.YIELDS: "true",
}


def _elastic_job() -> Json:
    raw = generator.rich_job()
    raw["metadata"]["annotations"] = {
        **{key: value for key, value in ELASTIC_NOTES.items() if "elastic" not in key},
        names.USER: "ann",
        names.QUEUE_NAME: "q",
    }
    del raw["spec"]["tasks"][1]["partitionPolicy"], raw["spec"]["tasks"][1]["minAvailable"]
    raw["spec"] |= {
        "plugins": {"elastic": ["--task=worker", "--step=1", "--hold=8s"], "svc": []},
        "replicas": 4,
    }
    elastic = {"members": "0-2", "generation": 3, "reason": "r", "leaveBy": WHEN}
    raw["status"] |= {"elastic": {"worker": elastic}, "lastCommand": "u-c", "minAvailable": 2}
    raw["status"]["state"] |= {"reason": "r", "message": "m"}
    return raw


def _job_with_corners() -> Json:
    """What rich_job() leaves out, because it excludes the rest."""
    raw = generator.rich_job()
    raw["metadata"] |= {
        "deletionTimestamp": WHEN,
        "ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "u-c", "controller": True}],
    }
    first, second = raw["spec"]["tasks"]
    first["policies"] = [{"exitCode": 3, "action": "RestartPod"}]
    second["policies"] = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartTask"}]
    raw["spec"]["policies"] = [
        {"event": "PodEvicted", "action": "RestartJob", "timeout": "5s"},
        {"exitCode": 3, "action": "AbortJob"},
    ]
    main = {**container(gpu=1), "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    main["resources"]["limits"] = {names.GPU: "1"}
    second["template"] = {
        "metadata": {"labels": {"a": "b"}, "annotations": {names.RUNS_FOR: "1h"}},
        "spec": {
            "containers": [main],
            "initContainers": [{**main, "restartPolicy": "Always"}],
            "overhead": {"cpu": "100m"},
            "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
            "hostname": "h",
            "subdomain": "s",
        },
    }
    raw["spec"]["networkTopology"] = {"mode": "hard", "highestTierName": names.RACK}
    first |= {"replicas": 2, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 1}}
    first["partitionPolicy"]["networkTopology"] = {"highestTierName": names.RACK}
    first["topologyPolicy"] = "best-effort"
    second["partitionPolicy"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    raw["spec"]["volumes"] = [{"mountPath": "/d", "volumeClaimName": "c"}]
    return raw


def _cron_with_history() -> Json:
    raw = generator.cron()
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"] |= {"schedule": "@every 1h", "suspend": True, "failedJobsHistoryLimit": 2}
    raw["status"] |= {
        "lastSuccessfulTime": WHEN,
        "active": [{"name": "c-1", "uid": "u-1", "namespace": "evil", "kind": "Job"}],
    }
    return raw


def _command() -> Json:
    raw = generator.command()
    raw["metadata"]["deletionTimestamp"] = WHEN
    return raw


def _flow_that_ends() -> Json:
    raw = generator.rich_flow()
    raw["metadata"]["deletionTimestamp"] = WHEN
    raw["spec"]["flows"][1]["dependsOn"]["probe"]["tcpSocketList"] = [{"port": 1, "taskName": "w"}]
    return raw


def _template() -> Json:
    raw = generator.KINDS["jobtemplates.flow.volcano.sh"]()
    raw["metadata"]["annotations"] = {names.RUNS_FOR: "1h"}
    return raw


def _hypernode() -> Json:
    raw = generator.hypernode()
    raw["spec"]["tierName"] = "rack"
    raw["spec"]["members"][1]["selector"]["labelMatch"]["matchExpressions"] = []
    return raw


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "jobs.batch.volcano.sh": (generator.rich_job, _elastic_job, _job_with_corners),
    "cronjobs.batch.volcano.sh": (generator.cron, _cron_with_history),
    "commands.bus.volcano.sh": (_command,),
    "jobflows.flow.volcano.sh": (generator.rich_flow, _flow_that_ends),
    "jobtemplates.flow.volcano.sh": (_template,),
    "hypernodes.topology.volcano.sh": (_hypernode,),
}
