"""OpenAPI documents: what kubectl explain reads."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from central.kube.transport.http_client import connect
from central.standalone import openapi
from central.standalone.apiserver import StandaloneApi
from central.standalone.served_kinds import Registry, shipped


def test_the_index_names_every_version_and_each_has_a_document() -> None:
    registry = Registry(shipped())
    index = openapi.document("", registry)
    assert index is not None
    assert {"api/v1", "apis/apps/v1", "apis/batch.volcano.sh/v1alpha1"} <= {*index["paths"]}
    for path in index["paths"]:
        described = openapi.document(path, registry)
        assert described is not None
        for item in described["paths"].values():
            reference = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            name = reference["$ref"].rpartition("/")[2]
            gvk = item["get"]["x-kubernetes-group-version-kind"]
            schema = described["components"]["schemas"][name]
            assert schema["x-kubernetes-group-version-kind"] == [gvk]
    assert openapi.document("apis/nothing/v1", registry) is None


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with StandaloneApi() as api:
        yield api.write_kubeconfig(tmp_path / "kubeconfig")


def test_an_unknown_version_is_not_found(kubeconfig: Path) -> None:
    client = connect(str(kubeconfig))
    assert client.request("GET", "/openapi/v3/apis/nothing/v1").status == 404
    paths = orjson.loads(client.request("GET", "/openapi/v3").body)["paths"]
    one = client.get(paths["apis/scheduling.volcano.sh/v1beta1"]["serverRelativeURL"])
    assert one["openapi"].startswith("3.")
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "version", "shown"),
    [
        ("queue.spec.weight", "scheduling.volcano.sh/v1beta1", "FIELD: weight <integer>"),
        ("jobs.spec.tasks", "batch.volcano.sh/v1alpha1", "minAvailable"),
        ("deployment", "apps/v1", "KIND:       Deployment"),
    ],
)
def test_kubectl_explains(
    kubeconfig: Path, tmp_path: Path, what: str, version: str, shown: str
) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    # kubectl 1.27 or newer reads version 3; an older one version 2, which is not served
    asked = subprocess.run(
        [kubectl, "version", "--client", "-o", "json"], capture_output=True, check=True
    )
    client = orjson.loads(asked.stdout)["clientVersion"]
    if int(client["minor"].rstrip("+")) < 27:
        pytest.skip("this kubectl reads OpenAPI version 2")
    command = [kubectl, "--kubeconfig", str(kubeconfig), "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "explain", what, f"--api-version={version}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
