"""Plain kubeconfigs are read as the kubernetes package reads them, and all others are left to it."""

import base64
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from central.kube.transport import plain_kubeconfig
from central.kube.transport.configuration import KubeconfigError, load_user_config
from central.server import tls

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    issued = tls.issue("lockstep-system", datetime.now(UTC))
    (tmp_path / "ca.crt").write_bytes(issued.ca)
    (tmp_path / "own.crt").write_bytes(issued.certificate)
    (tmp_path / "own.key").write_bytes(issued.key)
    (tmp_path / "token").write_text("from-a-file\n")
    return tmp_path


def data(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def kubeconfig(folder: Path, cluster: Json, user: Json | None, namespace: str = "") -> Path:
    chosen = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "x", "context": chosen},
            {"name": "y", "context": {**chosen, "namespace": "why"}},
        ],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


def same(file: Path, context: str | None = None) -> None:
    """Both readers agree on everything that is used."""
    from kubernetes.client import Configuration  # takes a second to import
    from kubernetes.config import list_kube_config_contexts, load_kube_config

    theirs = Configuration()
    load_kube_config(str(file), context, theirs, persist_config=False)
    contexts, active = list_kube_config_contexts(str(file))
    chosen = next((one for one in contexts if one["name"] == context), active)
    with plain_kubeconfig.read(str(file), context) as ours:
        assert ours is not None
        assert ours.host == theirs.host.rstrip("/")
        assert ours.proxy == (theirs.proxy or "")
        assert ours.tls_server_name == (theirs.tls_server_name or "")
        assert ours.verify_ssl == theirs.verify_ssl
        for key in ("ssl_ca_cert", "cert_file", "key_file"):
            mine, other = getattr(ours, key), getattr(theirs, key)
            assert bool(mine) == bool(other), key
            if mine:
                assert Path(mine).read_bytes() == Path(other).read_bytes()
        alias = theirs.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
        assert ours.get_api_key_with_prefix("BearerToken") == alias.strip()
        assert ours.namespace == (chosen["context"].get("namespace") or "default")


@pytest.mark.parametrize(
    "case", ["token", "nothing", "files", "data", "token file", "insecure", "both"]
)
def test_as_the_kubernetes_package_reads_them(folder: Path, case: str) -> None:
    authority = {"certificate-authority": "ca.crt"}
    given = {"certificate-authority-data": data(folder / "ca.crt")}
    own: Json = {"client-certificate": "own.crt", "client-key": "own.key"}
    own_data = {
        "client-certificate-data": data(folder / "own.crt"),
        "client-key-data": data(folder / "own.key"),
    }
    cases: dict[str, tuple[Json, Json | None]] = {
        "token": (authority, {"token": "abc"}),
        "nothing": (authority, {}),
        "files": ({**authority, "tls-server-name": "kubernetes"}, own),
        "data": (given, own_data),
        "token file": (given, {"tokenFile": str(folder / "token")}),
        "insecure": (
            {"insecure-skip-tls-verify": True, "proxy-url": "http://p:1"},
            {"token": "abc"},
        ),
        "both": ({**authority, **given}, {**own, **own_data, "token": "abc"}),
    }
    cluster, user = cases[case]
    file = kubeconfig(folder, cluster, user, "team")
    same(file)
    same(file, "y")
    config, namespace = load_user_config(str(file), None)
    assert (config.server, namespace) == ("https://10.0.0.1:6443", "team")


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1"}},
        {"auth-provider": {"name": "oidc"}},
        {"username": "u", "password": "p"},
        {"token": 7},
        {"client-certificate-data": "no base64", "client-key-data": "no base64"},
    ],
)
def test_others_are_left_to_it(folder: Path, user: Json) -> None:
    with plain_kubeconfig.read(str(kubeconfig(folder, {}, user)), None) as found:
        assert found is None


def test_proxies_of_the_environment_are_left_to_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    file = kubeconfig(folder, {}, {"token": "abc"})
    with plain_kubeconfig.read(str(file), None) as found:
        assert found is None
    assert load_user_config(str(file), None)[0].proxy == "http://proxy:3128"


def test_other_variables_that_end_in_proxy_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1")
    with plain_kubeconfig.read(str(kubeconfig(folder, {}, {"token": "abc"})), None) as found:
        assert found is not None


@pytest.mark.parametrize("text", ["", "[", "a: b", "contexts: 3", "\x00"])
def test_what_is_none_is_a_sentence(folder: Path, text: str) -> None:
    (folder / "kubeconfig").write_text(text)
    with plain_kubeconfig.read(str(folder / "kubeconfig"), None) as found:
        assert found is None
    with pytest.raises(KubeconfigError, match="kubeconfig "):
        load_user_config(str(folder / "kubeconfig"), None)


def test_keys_that_are_given_as_data_leave_no_files(folder: Path) -> None:
    user = {
        "client-certificate-data": data(folder / "own.crt"),
        "client-key-data": data(folder / "own.key"),
    }
    with plain_kubeconfig.read(str(kubeconfig(folder, {}, user)), None) as found:
        assert found is not None
        key = Path(found.key_file)
        assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not key.exists()


def test_a_command_with_a_plain_kubeconfig_imports_no_kubernetes_package(folder: Path) -> None:
    file = kubeconfig(folder, {}, {"token": "abc"})
    code = (
        "import sys; from central.cli.jobs import api, list_command; "
        f"api.open_api({str(file)!r}, None, None); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"kubernetes", "urllib3", "numpy", "grpc", "rich"} & set(done.stdout.split())
