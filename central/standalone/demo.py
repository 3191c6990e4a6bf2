"""`lockstep demo`: three workloads on a local cluster, and where the scheduler places them."""

import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console

from central.server import rack_picture
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, Failed, Interrupted, LocalCluster, free_port
from central.standalone.run_length import LONGEST_S, UNKNOWN_S, demo_run_s
from protos import matrix, wire
from protos.names import BLOCK, RACK
from protos.stubs import fleet_pb2 as pb

MANIFESTS = Path(__file__).parent / "manifests"
RACKS = (("r1", "a100", "dgx-a100-8"), ("r2", "h100", "hgx-h100-8"))
NODES_PER_RACK = 4
SHOWN = "a100-1"
GANGS = ("chat", "train", "giant")
EXAMPLES = "examples"  # a namespace, because two of the examples have names of the demo's gangs
TRY = (
    "lockstep topology --picture",
    "lockstep top",
    f"lockstep topology {SHOWN}",
    "lockstep explain giant",
    "lockstep job run hello -r 2 -g 1 --follow",
    f"kubectl apply -n {EXAMPLES} -f daemonset/examples/pytorch.yaml",
    "kubectl get pods -A -o wide",
    "kubectl explain queue.spec",
    "kubectl delete pods -l app=train     # frees GPUs: giant starts",
)


def run(*, keep: bool = False, port: int = 0, web: bool = False) -> int:
    console = Console()
    with _signals() as caught:
        try:
            console_port = free_port() if web else 0
            flags = [f"--console-listen=127.0.0.1:{console_port}"] if web else []
            with LocalCluster(
                nodes(), port=port, flags=flags, run_s=demo_run_s, interrupted=lambda: bool(caught)
            ) as box:
                _start(console, box)
                _matrix(console, box)
                _workloads(console, box)
                if keep or web:
                    _keep(console, box, console_port)
        except Failed as error:
            print(f"lockstep demo: {error}", file=sys.stderr)
            return 2
        except Interrupted:
            console.print("\nStopped; all processes and temporary files are gone.")
            return 0 if keep or web else 130
    console.print(
        "\nDone; all processes and temporary files are gone. `lockstep demo --keep` keeps the cluster running."
    )
    return 0


def nodes() -> list[HollowNode]:
    return [
        HollowNode(f"{kind}-{at}", {BLOCK: "b1", RACK: rack}, capture=CAPTURES / f"{capture}.json")
        for rack, kind, capture in RACKS
        for at in range(1, NODES_PER_RACK + 1)
    ]


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The received signals. They have no other effect, so that cleanup is not interrupted."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may set handlers
        return
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StepPrinter:
    """Prints a line per step, with its duration."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._since = time.monotonic()

    def done(self, text: str) -> None:
        now = time.monotonic()
        self._console.print(
            f"  [green]ok[/green] {text} [dim]({now - self._since:.1f} s)[/dim]", highlight=False
        )
        self._since = now


def _start(console: Console, box: LocalCluster) -> None:
    progress = _StepPrinter(console)
    box.start_api()
    _title(console, "A local cluster: the programs are real, the hardware comes from captures")
    progress.done(f"Kubernetes API in memory at {box.api.url}")
    box.start_scheduler(flags=[f"--history={box.directory / 'history'}"])
    box.start_nodes()
    box.start_controllers()
    box.create("/api/v1/namespaces", {"metadata": {"name": EXAMPLES}})
    progress.done(f"{len(nodes())} hollow nodes in 2 racks, their kubelets on unix sockets")
    box.wait_for_scheduler()
    progress.done(f"lockstep central at {box.server}, over TLS")
    box.start_agents()
    shown = box.wait("the agents to register and report", lambda: _reported(box))
    gpus = sum(node.gpus_allocatable for node in shown.nodes)
    progress.done(f"{len(shown.nodes)} agents: {gpus} GPUs registered and reported")


def _reported(box: LocalCluster) -> pb.TopologyReply | None:
    """All nodes, once each kubelet has its GPUs and the scheduler has each agent's report."""
    reply = box.topology()
    if reply is None or len(reply.nodes) < len(nodes()):
        return None
    ready = all(
        node.HasField("topology") and node.gpus_allocatable == len(node.topology.gpus)
        for node in reply.nodes
    )
    return reply if ready else None


def _matrix(console: Console, box: LocalCluster) -> None:
    _title(console, f"The topology of {SHOWN} (lockstep topology {SHOWN})")
    reply = box.topology(SHOWN)
    if reply is None:
        raise Failed(f"the scheduler does not answer\n{box.logs()}")
    topology = wire.from_topology(reply.nodes[0].topology)
    _plain(console, matrix.fitting(topology, console.width))


def _workloads(console: Console, box: LocalCluster) -> None:
    for file, gang in zip(sorted(MANIFESTS.glob("*.yaml")), GANGS, strict=True):
        _title(console, file.read_text().partition("\n")[0].removeprefix("# "))
        box.apply(file)
        console.print(f"[dim]$ kubectl apply -f {_shown(file)}[/dim]", highlight=False)
        explained = box.wait(f"the status of gang {gang}", partial(_settled, box, gang))
        _print_gang(console, explained)
    _title(console, "The cluster: one character per GPU")
    reply = box.topology()
    if reply is not None:
        rack_picture.draw(console, rack_picture.racks(reply))


def _settled(box: LocalCluster, name: str) -> pb.ExplainReply | None:
    """The gang's explanation, once the whole gang runs with confirmed GPUs, or is known to be pending."""
    explained = box.explain(name)
    if (
        explained is None
        or not explained.found
        or not explained.pods
        or len(explained.pods) < explained.min_member
    ):
        return None
    placed = [pod for pod in explained.pods if pod.node]
    if placed:
        whole = all(pod.phase == "Running" and pod.confirmed for pod in explained.pods)
        return explained if whole else None
    return explained if explained.reason.startswith("needs ") else None


def _print_gang(console: Console, explained: pb.ExplainReply) -> None:
    console.print(
        f"[bold]{explained.namespace}/{explained.name}[/bold]: {explained.phase}: {explained.reason}",
        highlight=False,
    )
    for pod in explained.pods:
        if pod.node:
            gpus = ",".join(map(str, pod.gpus))
            console.print(f"  {pod.name} on {pod.node}, GPUs {gpus}", highlight=False)


def _page(box: LocalCluster, url: str) -> str:
    """The address of a page that leads to the URL. Most terminals break a URL with a token in the middle, so that it
    can't be clicked."""
    page = box.directory / "console.html"
    page.touch(0o600)
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">\n')
    return page.as_uri()


def _keep(console: Console, box: LocalCluster, console_port: int) -> None:
    if console_port:
        _title(console, "The web console:")
        url = f"http://127.0.0.1:{console_port}/#token={box.token_file.read_text()}"
        _plain(console, f"{_page(box, url)}\nor\n{url}")
    _title(console, "The cluster runs until Ctrl-C. In another terminal:")
    exports = {
        "KUBECONFIG": box.kubeconfig,
        "LOCKSTEP_SERVER": box.server,
        "LOCKSTEP_CA": box.ca_file,
        "LOCKSTEP_TOKEN_FILE": box.token_file,
    }
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()]
    lines += [*_path_hint(), "", *TRY]
    _plain(console, "\n".join(lines))
    _title(console, "No container starts here. A pod ends after the `sleep` of its command,")
    _plain(
        console,
        f"after {LONGEST_S:.0f} s at most, or after {UNKNOWN_S:.0f} s; one with restartPolicy Always "
        "runs until\nit is deleted. The annotation lockstep.dev/runs-for: 90s sets another time.",
    )
    while True:
        time.sleep(0.2)
        box.check()


def _path_hint() -> list[str]:
    """Returns a line for the shell; none if the shell finds this `lockstep` already."""
    here = Path(sys.executable).parent
    found = shutil.which("lockstep")
    if not (here / "lockstep").exists() or (found and Path(found).parent == here):
        return []
    return [f"export PATH={shlex.quote(str(here))}:$PATH"]


def _title(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]", highlight=False)


def _plain(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _shown(file: Path) -> str:
    """The path as a user would type it: relative, if below the current directory."""
    here = Path.cwd()
    return shlex.quote(str(file.relative_to(here) if file.is_relative_to(here) else file))
