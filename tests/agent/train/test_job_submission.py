"""Jobs from a notebook, against the in-memory API: what is created, that the script is the function, and what is
shown."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import train
from agent.train import job_submission
from agent.train.job_submission import SCRIPT_MOST, SubmittedJob, submit
from agent.train.kubernetes_api import ClusterRefused, KubernetesApi, from_config
from central.standalone.apiserver import StandaloneApi
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with StandaloneApi() as server:
        yield from_config(json.loads(server.kubeconfig()))


def greet(name: str, *, times: int = 1) -> None:
    import os

    for _ in range(times):
        print(f"hello {name} $(HOME) $$ {os.environ.get('GREETING', '')}")


def created(api: KubernetesApi, job: SubmittedJob) -> Json:
    found: Json = api.request("GET", f"{JOBS}/{job.name}")
    return found


def container(job: Json) -> Json:
    found: Json = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    return found


def expanded(words: list[str]) -> list[str]:
    """As Kubernetes expands a command in which no variable is defined."""
    return [re.sub(r"\$\$", "$", word) for word in words]


def test_a_function_runs_with_its_arguments(api: KubernetesApi) -> None:
    job = submit(greet, "ann", times=2, gpus=4, replicas=3, env={"GREETING": "x"}, api=api)
    assert job.name.startswith("greet-")
    found = created(api, job)
    main = container(found)
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert main["env"] == [{"name": "GREETING", "value": "x"}]
    assert (found["spec"]["minAvailable"], found["spec"]["schedulerName"]) == (3, "lockstep")
    command = [sys.executable, *expanded(main["command"])[1:]]
    env = {**os.environ, "GREETING": "x"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "hello ann $(HOME) $$ x\n" * 2


def test_a_script_runs_with_its_arguments(api: KubernetesApi, tmp_path: Path) -> None:
    script = tmp_path / "Train_It.py"
    script.write_text("import sys; print(sys.argv[1:])")
    job = submit(
        script,
        3,
        "$(HOME)",
        name="mine",
        within="lockstep.dev/rack",
        runs_for="2h",
        priority="high",
        annotations={"a": "b"},
        requests={"memory": "64Gi"},
        gpu_model="H100",
        shm="16Gi",
        volumes={"data": "/data"},
        time_limit_s=7200,
        api=api,
    )
    found = created(api, job)
    assert job.name == "mine"
    assert found["metadata"]["annotations"] == {
        "a": "b",
        "lockstep.dev/topology-required": "lockstep.dev/rack",
        "lockstep.dev/runs-for": "2h",
        "lockstep.dev/time-limit": "7200s",
    }
    assert found["spec"]["priorityClassName"] == "high"
    template = found["spec"]["tasks"][0]["template"]
    assert template["metadata"]["annotations"] == {"lockstep.dev/gpu-model": "H100"}
    assert container(found)["resources"] == {"requests": {"memory": "64Gi"}}
    claim, shm = template["spec"]["volumes"]
    assert claim["persistentVolumeClaim"] == {"claimName": "data"}
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert [each["mountPath"] for each in container(found)["volumeMounts"]] == ["/data", "/dev/shm"]
    command = [sys.executable, *expanded(container(found)["command"])[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['3', '$(HOME)']\n"
    assert submit(script, api=api).name.startswith("train-it-")


def pod(api: KubernetesApi, job: SubmittedJob, at: int, **status: Any) -> None:
    made = {
        "metadata": {
            "name": f"{job.name}-worker-{at}",
            "labels": {"volcano.sh/job-name": job.name},
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    api.request("POST", PODS, made)
    path = f"{PODS}/{job.name}-worker-{at}/status"
    whole = api.request("GET", path.rpartition("/")[0])
    api.request("PUT", path, {**whole, "status": status})


def has_phase(api: KubernetesApi, job: SubmittedJob, phase: str, message: str = "") -> None:
    found = created(api, job)
    found["status"] = {"state": {"phase": phase, "message": message}}
    api.request("PUT", f"{JOBS}/{job.name}/status", found)


def test_what_is_shown_is_text(api: KubernetesApi) -> None:
    job = submit(greet, "ann", name="j", api=api)
    evil = {
        "type": "PodScheduled",
        "status": "False",
        "message": "<script>alert(1)</script> & more",
    }
    for at in (10, 2):
        pod(api, job, at, phase="Pending", conditions=[evil])
    shown = job._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown
    assert "<script" not in shown
    assert shown.index("j-worker-2") < shown.index("j-worker-10")
    job.delete()
    assert "not found" in job._repr_html_()


def test_it_waits_for_the_end_and_says_why(api: KubernetesApi) -> None:
    job = submit(greet, "ann", name="j", api=api)
    with pytest.raises(TimeoutError, match="job j is Pending after 0 s"):
        job.wait(timeout_s=0)
    has_phase(api, job, "Failed", "1 pod failed")
    with pytest.raises(RuntimeError, match="job j is Failed: 1 pod failed"):
        job.wait()
    has_phase(api, job, "Completed")
    assert job.wait() == "Completed"
    with pytest.raises(ValueError, match="has 0 pods"):
        job.logs()


AWAY = (Answer(hang_up=True), failure(503, "starting"), failure(429, "slow down"))


def of_phases(*answers: Answer | str) -> Callable[[Call], Answer]:
    left = [
        Answer(
            body={"metadata": {"name": "j"}, "status": {"state": {"phase": one}}},
            headers={"Content-Type": "application/json"},
        )
        if isinstance(one, str)
        else one
        for one in answers
    ]
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_it_waits_for_a_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that is cut, no connection, and refusals that pass; said once for each time."""
    monkeypatch.setattr(job_submission, "POLL_S", 0.001)
    cut = Answer(body="{", headers={"Content-Length": "99", "Connection": "close"})
    with Scripted(of_phases("Running", *AWAY, "Running", cut, "Completed")) as served:
        job = SubmittedJob(KubernetesApi(served.url, "default", None, None), "default", "j")
        assert job.wait() == "Completed"
    assert len([one for one in caplog.messages if one.endswith("; trying again")]) == 2
    with pytest.raises(ClusterRefused, match="no API server answers"):
        job.wait()


@pytest.mark.parametrize(
    ("then", "said"), [(failure(403, "forbidden"), "forbidden"), (AWAY[1], "starting")]
)
def test_a_refusal_or_a_long_outage_ends_the_wait(
    then: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_submission, "POLL_S", 0.001)
    if then is AWAY[1]:
        monkeypatch.setattr(job_submission, "PATIENCE_S", 0.0)
    with Scripted(of_phases("Running", then)) as served:
        job = SubmittedJob(KubernetesApi(served.url, "default", None, None), "default", "j")
        with pytest.raises(ClusterRefused, match=said):
            job.wait()


def inner() -> Any:
    def nested(step: int) -> None:
        print("nested", step)

    return nested


def test_an_inner_function_runs(api: KubernetesApi) -> None:
    command = container(created(api, submit(inner(), 1, api=api)))["command"]
    done = subprocess.run([sys.executable, *expanded(command)[1:]], capture_output=True, check=True)
    assert done.stdout == b"nested 1\n"


@pytest.mark.parametrize(
    ("what", "given", "said"),
    [
        (len, {}, "source of"),
        (lambda: None, {}, "not a function with a def"),
        (greet, {"name": object()}, "what JSON can hold"),
        (greet, {"replicas": 0}, "replicas must be 1 or more"),
        (greet, {"gpus": -1}, "gpus 0 or more"),
    ],
)
def test_what_cannot_be_sent(api: KubernetesApi, what: Any, given: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        submit(what, api=api, **given) if "name" not in given else submit(
            what, given["name"], api=api
        )
    assert api.request("GET", JOBS)["items"] == []


def test_a_script_that_is_too_long_or_has_keywords(api: KubernetesApi, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("#" * (SCRIPT_MOST + 1))
    with pytest.raises(ValueError, match="put it into the image"):
        submit(script, api=api)
    with pytest.raises(ValueError, match="no keyword arguments: steps"):
        submit(script, api=api, steps=1)


def test_refusals_are_the_servers_sentences(api: KubernetesApi) -> None:
    submit(greet, "ann", name="j", api=api)
    with pytest.raises(ClusterRefused, match="already exists") as refused:
        submit(greet, "ann", name="j", api=api)
    assert refused.value.status == 409
    nobody = KubernetesApi("http://127.0.0.1:1", "default", None, None)
    with pytest.raises(ClusterRefused, match="no API server answers at http://127"):
        submit(greet, "ann", api=nobody)


def test_a_login_program_is_refused_with_a_sentence() -> None:
    config = {
        "clusters": [{"cluster": {"server": "https://x"}}],
        "users": [{"user": {"exec": {"command": "login"}}}],
        "contexts": [{"context": {}}],
    }
    with pytest.raises(ClusterRefused, match="logs in with a program"):
        from_config(config)
    with pytest.raises(ClusterRefused, match="no current context"):
        from_config({})


def test_training_does_not_import_it() -> None:
    code = "import agent.train, sys; print('agent.train.job_submission' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert train.submit is submit
    assert inspect.isclass(train.SubmittedJob)
