"""The checks of `lockstep doctor`: a row of CHECKS each. A check yields what is wrong and what to do, or nothing.

for finding in run(installation): print(finding.level, finding.check, finding.text)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from central.cli.doctor import node_checks
from central.cli.doctor.installation import Installation, meta
from central.kube.transport.lease import NAME as LEASE
from central.model.json_types import Json
from protos.names import AGENT_ACCOUNT, CA_CONFIG_MAP, CENTRAL_ACCOUNT

Level = Literal["ok", "warn", "fail", "skip"]
OLDEST = (1, 35)  # minor version of Kubernetes
LEASE_OLD_S = 60.0  # four times the Lease's duration
EXPIRES_SOON_S = 7 * 86400.0
DEFINITIONS = (
    "commands.bus.volcano.sh",
    "cronjobs.batch.volcano.sh",
    "hypernodes.topology.volcano.sh",
    "jobflows.flow.volcano.sh",
    "jobs.batch.volcano.sh",
    "jobtemplates.flow.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
)
INSTALL = "install again: kubectl apply -k daemonset, or helm upgrade"


@dataclass(frozen=True, slots=True)
class CheckResult:
    level: Level
    check: str
    text: str  # what is wrong, and what to do


class Check(NamedTuple):
    """name: of the line. needs: kinds that must have been read. problems: yields (level, text). good: text if none."""

    name: str
    needs: tuple[str, ...]
    problems: Callable[[Installation], Iterator[tuple[Level, str]]]
    good: Callable[[Installation], str]


def run(found: Installation) -> Iterator[CheckResult]:
    """Yields a finding for each problem, and one for each check that has none or could not be made."""
    for check in CHECKS:
        if refused := [found.unread[kind] for kind in check.needs if kind in found.unread]:
            yield CheckResult("skip", check.name, f"not checked: {refused[0]}")
            continue
        some = False
        for level, text in check.problems(found):
            some = True
            yield CheckResult(level, check.name, text)
        if not some:
            yield CheckResult("ok", check.name, check.good(found))


def _kubernetes(found: Installation) -> Iterator[tuple[Level, str]]:
    try:
        version = tuple(int(part) for part in found.api_version.lstrip("v").split(".")[:2])
    except ValueError:
        return
    if version < OLDEST:
        yield "fail", f"{found.api_version} is too old: Lockstep needs 1.{OLDEST[1]} or newer"


def _definitions(found: Installation) -> Iterator[tuple[Level, str]]:
    there = {meta(each).get("name"): each for each in found.all("CustomResourceDefinition")}
    missing = [name for name in DEFINITIONS if name not in there]
    if missing:
        yield "fail", f"missing: {', '.join(missing)}; {INSTALL}"
    for name in DEFINITIONS:
        conditions = ((there.get(name) or {}).get("status") or {}).get("conditions") or ()
        for each in conditions:
            if each.get("type") == "Established" and each.get("status") == "False":
                yield "fail", f"{name} is not served: {each.get('message')}"


def _scheduler(found: Installation) -> Iterator[tuple[Level, str]]:
    made = found.named("Deployment", CENTRAL_ACCOUNT)
    if made is None:
        yield "fail", f"no Deployment {found.namespace}/{CENTRAL_ACCOUNT}; {INSTALL}"
        return
    wanted = (made.get("spec") or {}).get("replicas", 1)
    ready = (made.get("status") or {}).get("readyReplicas", 0)
    if ready >= wanted > 0:
        return
    level: Level = "warn" if ready and wanted else "fail"
    why = next(node_checks.pod_problems(found, CENTRAL_ACCOUNT), "")
    if wanted == 0:
        why = f"scale it up: kubectl -n {found.namespace} scale deployment {CENTRAL_ACCOUNT} --replicas=2"
    why = why or f"kubectl -n {found.namespace} describe pods says why"
    yield level, f"{ready} of {wanted} replicas are ready; {why}"


def _leader(found: Installation) -> Iterator[tuple[Level, str]]:
    logs = f"kubectl -n {found.namespace} logs deploy/{CENTRAL_ACCOUNT} says why"
    lease = next(iter(found.all("Lease")), None)
    if lease is None:
        yield "fail", f"no Lease {LEASE}: no replica has ever led; {logs}"
        return
    try:
        renewed = datetime.fromisoformat(str((lease.get("spec") or {}).get("renewTime")))
    except ValueError:
        yield "fail", f"the Lease was never renewed: no replica leads; {logs}"
        return
    age = found.now - renewed.timestamp()
    if age > LEASE_OLD_S:
        yield "fail", f"the Lease was renewed {_span(age)} ago: no replica leads; {logs}"
    elif age < -LEASE_OLD_S:
        yield (
            "warn",
            f"the Lease is from the future: the clocks differ by {_span(-age)}; correct them",
        )


def _certificate(found: Installation) -> Iterator[tuple[Level, str]]:
    from cryptography import x509

    maps = found.all("ConfigMap")
    text = ((maps[0].get("data") or {}) if maps else {}).get("ca.crt", "")
    again = f"kubectl -n {found.namespace} rollout restart deploy/{CENTRAL_ACCOUNT}"
    if not text:
        yield (
            "fail",
            f"no certificate in the ConfigMap {CA_CONFIG_MAP}; the leader writes it: {again}",
        )
        return
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        yield (
            "fail",
            f"the ConfigMap {CA_CONFIG_MAP} has no readable certificate; delete it, then {again}",
        )
        return
    now = datetime.fromtimestamp(found.now, UTC)
    last = max(each.not_valid_after_utc for each in certificates)
    left = (last - now).total_seconds()
    if left < 0:
        yield (
            "fail",
            f"the certificate expired on {last:%Y-%m-%d}; {again}, or correct the clock here",
        )
    elif min(each.not_valid_before_utc for each in certificates) > now:
        yield (
            "fail",
            "the certificate is not valid yet; correct the clock here or of the scheduler's node",
        )
    elif left < EXPIRES_SOON_S:
        yield (
            "warn",
            f"the certificate expires in {_span(left)}; {again} if it is not renewed by then",
        )


def _rights(found: Installation) -> Iterator[tuple[Level, str]]:
    account = f"the ServiceAccount {found.namespace}/{CENTRAL_ACCOUNT} may not"
    install = f"{INSTALL}, with its ClusterRoles"
    if found.lacking:
        yield "fail", f"{account} {', '.join(found.lacking)}; {install}"
    if found.ignored:
        ignored = ", ".join(found.ignored)
        yield "warn", f"{account} watch {ignored}: they count as not installed; {install}"


def _own_rights(found: Installation) -> Iterator[tuple[Level, str]]:
    if found.own_lacking:
        lacks = ", ".join(found.own_lacking)
        yield "warn", f"you may not {lacks}; ask for the ClusterRole edit in that namespace"


def _versions(found: Installation) -> Iterator[tuple[Level, str]]:
    tags = _tags(found)
    if len(set(tags.values())) > 1:
        listed = ", ".join(f"{name} {tag}" for name, tag in tags.items())
        yield (
            "warn",
            f"differ: {listed}; finish the upgrade, or install this version of the command",
        )


def _tags(found: Installation) -> dict[str, str]:
    tags = {"this command": found.own_version}
    for kind, name in (("Deployment", CENTRAL_ACCOUNT), ("DaemonSet", AGENT_ACCOUNT)):
        template = ((found.named(kind, name) or {}).get("spec") or {}).get("template") or {}
        for container in ((template.get("spec") or {}).get("containers") or ())[:1]:
            tag = str(container.get("image", "")).partition("@")[0].rpartition("/")[2]
            if ":" in tag:
                tags[name] = tag.partition(":")[2]
    return tags


def _other_schedulers(found: Installation) -> Iterator[tuple[Level, str]]:
    for each in found.all("Deployment"):
        name = f"{meta(each).get('namespace')}/{meta(each).get('name')}"
        if str(meta(each).get("name")).startswith("volcano-") and (each.get("spec") or {}).get(
            "replicas", 1
        ):
            yield (
                "fail",
                f"Volcano runs ({name}), and both write the same objects: lockstep migrate check",
            )
            return


def _queues(found: Installation) -> Iterator[tuple[Level, str]]:
    states = {
        str(meta(each).get("name")): str((each.get("status") or {}).get("state") or "Open")
        for each in found.all("Queue")
    }
    used: dict[str, list[Json]] = {}
    for group in found.all("PodGroup"):
        if (group.get("status") or {}).get("phase") in ("Pending", "Inqueue", None):
            used.setdefault(str((group.get("spec") or {}).get("queue") or "default"), []).append(
                group
            )
    for name, groups in sorted(used.items()):
        first = f"{meta(groups[0]).get('namespace')}/{meta(groups[0]).get('name')}"
        if name not in states and name != "default":
            text = f"pending gangs that name the queue {name}, which does not exist: {len(groups)} ({first})"
            yield "warn", f"{text}; lockstep queue create, or correct spec.queue"
        elif states.get(name) in ("Closed", "Closing"):
            text = f"pending gangs in the queue {name}, which is closed: {len(groups)} ({first})"
            yield "warn", f"{text}; lockstep queue operate --action open {name}"


def _span(seconds: float) -> str:
    days, hours = int(seconds // 86400), int(seconds // 3600)
    return (
        f"{days} days" if days > 1 else f"{hours} h" if hours > 1 else f"{int(seconds // 60)} min"
    )


CHECKS = (
    Check("kubernetes", (), _kubernetes, lambda found: found.api_version),
    Check(
        "definitions",
        ("CustomResourceDefinition",),
        _definitions,
        lambda _: f"all {len(DEFINITIONS)} are served",
    ),
    Check("scheduler", ("Deployment", "Pod"), _scheduler, lambda _: "all replicas are ready"),
    Check("leader", ("Lease",), _leader, lambda _: "the Lease is renewed"),
    Check("certificate", ("ConfigMap",), _certificate, lambda _: "valid"),
    Check("rights", ("rights",), _rights, lambda _: "the scheduler has them"),
    Check("own rights", (), _own_rights, lambda _: "you may submit Jobs"),
    Check("versions", ("Deployment", "DaemonSet"), _versions, lambda found: found.own_version),
    Check(
        "agents",
        ("DaemonSet", "Pod", "Node", "RuntimeClass"),
        node_checks.agents,
        node_checks.agents_good,
    ),
    Check("nodes", ("Node", "Pod"), node_checks.nodes, node_checks.nodes_good),
    Check("plugins", ("DaemonSet",), node_checks.other_plugins, lambda _: "no other device plugin"),
    Check("schedulers", ("Deployment",), _other_schedulers, lambda _: "no other gang scheduler"),
    Check(
        "queues", ("Queue", "PodGroup"), _queues, lambda found: f"{len(found.all('Queue'))} queues"
    ),
)
