"""Volcano's own benchmark, unchanged, with Volcano and with Lockstep: `python -m tests.benchmarks.volcano_suite CHECKOUT`.

From a checkout of volcano-sh/volcano it builds Volcano's scheduler, its controllers and the benchmark's test, and KWOK
from its Go module. For each case and system a fresh API server gets nodes by the benchmark's script; the benchmark's
test creates Volcano's Jobs (schedulerName volcano) and waits until all pods are scheduled. KWOK plays the kubelets of
both. Webhooks are left out, which spares Volcano their calls.

The benchmark measures by the API server's audit log or by the pods' timestamps (collect-pod-latency.sh): here it is the
second way, and the duration of the test."""

import argparse
import json
import os
import re
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from psutil import Process
from rich.console import Console
from rich.table import Table

from tests.benchmarks import binding
from tests.benchmarks import plane as planes
from tests.benchmarks.plane import Plane
from tests.e2e.cluster.settings import ROOT, Trouble, program, say
from tests.e2e.controllers.sources import STORE, go
from tests.e2e.controllers.stage import running_process

KWOK = "sigs.k8s.io/kwok@v0.8.0"
FAST = ("--kube-api-qps=5000", "--kube-api-burst=10000")  # as its install-volcano.sh sets them
PASSED = re.compile(r"--- PASS: TestFromConfig \(([\d.]+)s\)")
PODS = "/api/v1/namespaces/default/pods"
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
JOB = "volcano.sh/job-name"  # label of a Job's pods
LEVELS = ("topology-rack", "topology-spine")  # labels of the script's nodes
SYSTEMS = ("Volcano", "Lockstep")


@dataclass(frozen=True)
class Case:
    name: str
    config: str  # of the benchmark's test: a file of its folder cases/, or YAML
    nodes: int = 100
    racks: int = 0  # in two spines; 0: nodes have no topology


@dataclass(frozen=True)
class Figures:
    test_s: float  # from the first Job's creation until the test has seen all pods scheduled
    mean_s: float  # of a pod, from its creation until it is scheduled; whole seconds as in all timestamps
    last_s: float  # of the pod that waited longest
    cpu_s: float  # processor time of scheduler and controllers
    racks: float  # mean number of racks on which a Job's pods lie; 0: there are none
    split: int  # Jobs with pods in both spines


def even(jobs: int, replicas: int) -> str:
    """What case-template.yaml of the benchmark becomes with these numbers."""
    task = {"name": "worker", "replicas": replicas, "cpu": "1", "memory": "1Gi"}
    job = {"name": "gang-test", "minAvailable": replicas, "queue": "default", "tasks": [task]}
    return yaml.safe_dump({"jobs": jobs, "jobTemplate": job})


CASES = (
    Case("10 Jobs of 100 pods, 100 nodes", even(10, 100)),
    Case("100 Jobs of 10 pods, 100 nodes", even(100, 10)),
    Case("500 Jobs of 10 pods, 500 nodes", even(500, 10), nodes=500),
    Case("net-topo.yaml: 10 Jobs of 50 pods, each in one spine", "net-topo.yaml", racks=4),
)


class Suite:
    """The programs, built once for each commit of the checkout."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout.resolve()
        self.benchmark = self.checkout / "benchmark"
        if not (self.benchmark / "testcases").is_dir():
            raise Trouble(
                f"{checkout} is no checkout of volcano-sh/volcano with benchmark/testcases"
            )
        asked = ["git", "-C", str(self.checkout), "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        self.folder = STORE / f"volcano-{commit}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._build("scheduler", "build", "./cmd/scheduler")
        self._build("controllers", "build", "./cmd/controller-manager")
        self._build("gang-test", "test", "-c", "./benchmark/testcases/gang")
        kwok = Path(json.loads(go("mod", "download", "-json", KWOK, cwd=Path("/")))["Dir"])
        self._build("kwok", "build", "./cmd/kwok", source=kwok)
        stages = [str(program("kubectl")), "kustomize", str(kwok / "kustomize/stage/fast")]
        self.stages = subprocess.run(stages, check=True, capture_output=True, text=True).stdout

    def _build(self, name: str, *argv: str, source: Path | None = None) -> None:
        *verb, package = argv
        if not (self.folder / name).exists():
            say(f"building {name}")
            go(*verb, "-o", str(self.folder / name), package, cwd=source or self.checkout)

    def run(self, case: Case, system: str) -> Figures:
        with ExitStack() as stack:
            plane = stack.enter_context(planes.running())

            def start(program: str | Path, *argv: str) -> Process:
                log = plane.folder / f"{Path(program).name}.log"
                return Process(stack.enter_context(running_process([str(program), *argv], log)))

            config = f"--kubeconfig={plane.kubeconfig}"

            def kubectl(*argv: str) -> None:
                _run(["kubectl", *argv], plane, {})

            # So that the script does not install KWOK in the cluster.
            kubectl("create", "deployment", "kwok-controller", "-n=kube-system", "--image=none")
            if system == "Volcano":
                chart = self.checkout / "installer/helm/chart/volcano"
                for crds in ("crd/bases", "charts/jobflow/crd/bases"):
                    kubectl("apply", "--server-side", f"-f={chart / crds}")
                started = [
                    start(*argv) for argv in self._volcano(plane, config, topology=case.racks > 0)
                ]
            else:
                kubectl("apply", "--server-side", f"-f={ROOT / 'daemonset/crds'}", "--recursive")
                argv = binding.centre_argv(plane)
                started = [start(*argv, "--scheduler-names=volcano")]
            stages = plane.folder / "stages.yaml"
            stages.write_text(self.stages)
            manages = "--manage-all-nodes=true"
            start(self.folder / "kwok", config, manages, f"--config={stages}")
            env = {"KWOK_NODE_COUNT": str(case.nodes)}
            if case.racks:
                env |= {"ENABLE_TOPOLOGY": "true", "TOPOLOGY_RACKS": str(case.racks)}
            self._script(plane, "create-kwok-nodes.sh", env)
            if case.racks:
                self._script(plane, "create-hypernodes.sh", env)
            while system == "Volcano" and not plane.client.request("GET", QUEUE).ok:
                time.sleep(0.2)  # its scheduler makes it
            test_s = self._test(plane, case)
            used = [process.cpu_times() for process in started]
            return _read(plane, test_s, sum(each.user + each.system for each in used))

    def _volcano(self, plane: Plane, config: str, *, topology: bool) -> list[tuple[str, ...]]:
        """The programs, with the scheduler's configuration that the benchmark ships; that has no plugin for topology."""
        shipped = self.benchmark / "testcases/gang/config/scheduler-config.yaml"
        conf = plane.folder / "volcano-scheduler.conf"
        found = yaml.safe_load(
            yaml.safe_load(shipped.read_text())["data"]["volcano-scheduler.conf"]
        )
        if topology:
            found["tiers"][-1]["plugins"].append({"name": "network-topology-aware"})
        conf.write_text(yaml.safe_dump(found))
        shared = (config, *FAST, "--leader-elect=false")
        return [
            (str(self.folder / "controllers"), *shared),
            (str(self.folder / "scheduler"), *shared, f"--scheduler-conf={conf}"),
        ]

    def _script(self, plane: Plane, name: str, env: Mapping[str, str]) -> None:
        _run(["bash", str(self.benchmark / "scripts" / name)], plane, env)

    def _test(self, plane: Plane, case: Case) -> float:
        cases = self.benchmark / "testcases/gang/cases"
        config = cases / case.config
        if "\n" in case.config:
            config = plane.folder / "case.yaml"
            config.write_text(case.config)
        argv = [str(self.folder / "gang-test"), "-test.v", "-test.run=TestFromConfig"]
        # Its pods stay, so that their timestamps can be read.
        told = _run(argv, plane, {"BENCHMARK_CONFIG": str(config), "DRY_RUN": "true"})
        if (passed := PASSED.search(told)) is None:
            raise Trouble(f"{case.name}: {told[-2000:]}")
        return float(passed[1])


def _run(argv: list[str], plane: Plane, env: Mapping[str, str]) -> str:
    path = f"{program('kubectl').parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), **env}
    done = subprocess.run(argv, env=variables, capture_output=True, text=True)
    if done.returncode:
        logs = "".join(log.read_text()[-1500:] for log in plane.folder.glob("*.log"))
        raise Trouble(f"{' '.join(argv)}: {done.stdout[-3000:]}{done.stderr[-2000:]}\n{logs}")
    return done.stdout


def _read(plane: Plane, test_s: float, cpu_s: float) -> Figures:
    nodes = plane.client.get("/api/v1/nodes")["items"]
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    waits: list[float] = []
    domains: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for pod in plane.client.get(PODS)["items"]:
        waits.append(_scheduled(pod) - _time(pod["metadata"]["creationTimestamp"]))
        for level in LEVELS:
            found = labels[pod["spec"]["nodeName"]].get(level)
            domains[level][pod["metadata"]["labels"][JOB]].add(found)
    racks, spines = (domains[level].values() for level in LEVELS)
    return Figures(
        test_s,
        statistics.mean(waits),
        max(waits),
        cpu_s,
        statistics.mean(len(each - {None}) for each in racks),
        sum(len(each) > 1 for each in spines),
    )


def _scheduled(pod: dict[str, Any]) -> float:
    conditions = {each["type"]: each for each in pod["status"]["conditions"]}
    return _time(conditions["PodScheduled"]["lastTransitionTime"])


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of volcano-sh/volcano")
    parser.add_argument("--rounds", type=int, default=2, help="of each case and system, in turn")
    parser.add_argument("--case", type=int, help="only this one, counted from 0")
    given = parser.parse_args()
    try:
        suite = Suite(given.checkout)
    except Trouble as trouble:
        parser.error(str(trouble))
    table = Table("case", "system", "test", "pod, mean", "pod, last", "CPU", "racks", "split")
    for case in CASES if given.case is None else [CASES[given.case]]:
        runs: dict[str, list[Figures]] = defaultdict(list)
        for number in range(given.rounds):
            for system in SYSTEMS:
                say(f"{case.name}: {system}, round {number + 1} of {given.rounds}")
                runs[system].append(suite.run(case, system))
        for system in SYSTEMS:
            columns = zip(*map(astuple, runs[system]), strict=True)
            test, mean, last, cpu, racks, split = map(statistics.median, columns)
            seconds = (f"{each:.1f} s" for each in (test, mean, last, cpu))
            table.add_row(case.name, system, *seconds, f"{racks:.1f}", f"{split:g}")
    Console().print(table)


if __name__ == "__main__":
    main()
