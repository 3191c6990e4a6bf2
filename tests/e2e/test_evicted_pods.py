"""What a real API server writes into a pod that is evicted as the scheduler does it. etcd and kube-apiserver alone."""

import json

import pytest

from central.kube.write.pod_requests import Evictor
from central.model.decisions import Evict
from tests.benchmarks import plane
from tests.e2e.world import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
PODS = "/api/v1/namespaces/default/pods"


def test_an_evicted_pod_says_that_it_was_a_disruption() -> None:
    """Jobs with a podFailurePolicy for DisruptionTarget do not count it as a failure."""
    with plane.running() as api:
        raw = pod("victim", 0)
        raw["spec"] |= {"nodeName": "n0", "terminationGracePeriodSeconds": 30}
        namespace = json.dumps({"metadata": {"name": "default"}}).encode()
        api.client.request("POST", "/api/v1/namespaces", namespace)
        assert api.client.request("POST", PODS, json.dumps(raw).encode()).ok
        uid = api.client.get(f"{PODS}/victim")["metadata"]["uid"]
        done = Evictor(api.client).evict(Evict(uid, "default", "victim", "n0", "preempted"))
        assert done.why == ""
        found = api.client.get(f"{PODS}/victim")
        [condition] = [
            each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget"
        ]
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
        assert "deletionTimestamp" in found["metadata"]
