"""The parts of the test cluster that can be tried without one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e import image
from tests.e2e.cluster.dns import PTR, SRV, A, Records
from tests.e2e.cluster.settings import CACHE, ROOT


def test_a_layer_is_the_same_bytes_for_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").write_text("c")
    (tmp_path / "a").write_text("a")
    archive = image.Layer().add(tmp_path, "/x").tar()
    os.utime(tmp_path / "a", (1, 1))
    assert image.Layer().add(tmp_path, "/x").tar() == archive


def test_newer_programs_take_the_place_of_ours(tmp_path: Path) -> None:
    newer = tmp_path / "kube-apiserver"
    newer.touch(mode=0o755)
    script = "from tests.e2e.cluster.settings import program as p; print(p('kube-apiserver'), p('kubelet'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(newer), str(CACHE / "bin/kubelet")]


def test_names_of_services_and_of_pods_behind_headless_ones() -> None:
    records = Records("cluster.local")
    ports = [{"name": "grpc", "port": 9443, "protocol": "TCP"}]
    records.service("ns/one", {"spec": {"clusterIP": "10.96.0.7", "ports": ports}}, [])
    subset = {"addresses": [{"ip": "10.244.1.2", "hostname": "w-0"}], "ports": ports}
    records.service("ns/all", {"spec": {"clusterIP": "None"}}, [subset])
    assert records.values["one.ns.svc.cluster.local", A] == ["10.96.0.7"]
    assert records.values["7.0.96.10.in-addr.arpa", PTR] == ["one.ns.svc.cluster.local"]
    pod = "w-0.all.ns.svc.cluster.local"
    assert records.values[pod, A] == records.values["all.ns.svc.cluster.local", A] == ["10.244.1.2"]
    assert records.values["_grpc._tcp.all.ns.svc.cluster.local", SRV] == [(9443, pod)]
