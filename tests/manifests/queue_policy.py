"""Writes the policy of the component `tenants` that asks for the verb `use`, from the list of places where objects name
a queue (tests/manifests/queue_places.py). `make reference` runs it."""

import textwrap

from protos.names import CENTRAL_ACCOUNT, NAMESPACE, QUEUE_NAME
from tests.manifests.manifests import FOLDER
from tests.manifests.queue_places import MADE_FROM, READ

FILE = FOLDER / "chart/files/tenants/queue-use.yaml"
_TOP = """\
# Written by `make reference` from tests/manifests/queue_places.py. Do not edit.
# Without these rules every namespace may name every queue that has no spec.access. The scheduler sees only the
# ServiceAccount of a pod; the API server knows who creates an object, so the check is here.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: lockstep-queue-use
  labels:
    app.kubernetes.io/part-of: lockstep
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
"""
_MIDDLE = f"""\
  matchConditions:
    # Controllers create for others, who were checked when they created the object that names the queue.
    - name: not-a-controller
      expression: >-
        !(request.userInfo.username == "system:serviceaccount:{NAMESPACE}:{CENTRAL_ACCOUNT}" ||
        request.userInfo.username.startsWith("system:serviceaccount:kube-system:"))
    # The status of every pod, again and again.
    - name: not-a-kubelet
      expression: '!(request.?subResource.orValue("") == "status" && "system:nodes" in request.userInfo.groups)'
  variables:
    - name: key
      expression: '"{QUEUE_NAME}"'
    # What the object names, and what it named before.
    - name: names
      expression: >-
        (oldObject == null ? [object] : [object, oldObject]).map(it, (
"""
_END = """\
        ).flatten(2).filter(q, q != "").distinct())
    # A namespace gives its queue to all that name none, too.
    - name: granted
      expression: >-
        ["", "default"] + (oldObject == null ? [] : variables.names[1]) + (namespaceObject == null ? [] :
        [namespaceObject.metadata.?annotations[?variables.key].orValue("")])
    - name: refused
      expression: >-
        variables.names[0].filter(q, !(q in variables.granted) &&
        !authorizer.group("scheduling.volcano.sh").resource("queues").name(q).check("use").allowed())
  validations:
    - expression: variables.refused.size() == 0
      # The authorizer's answers are not known to messages, so that all queues are named.
      messageExpression: >-
        "you need the verb use on queues.scheduling.volcano.sh for each queue that this object names: " +
        variables.names[0].join(", ")
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: lockstep-queue-use
  labels:
    app.kubernetes.io/part-of: lockstep
spec:
  policyName: lockstep-queue-use
  validationActions: [Deny]
"""


def text() -> str:
    named = " +\n".join(f"        {each}" for each in map(_names, places()))
    return f"{_TOP}{_rule()}{_MIDDLE}{named}\n{_END}"


def write() -> None:
    FILE.write_text(text())


def kinds() -> set[str]:
    return {*READ, *MADE_FROM}


def places() -> list[str]:
    """Of all kinds: what a kind does not have names nothing there."""
    return sorted({place for each in (READ, MADE_FROM) for of in each.values() for place in of})


def _rule() -> str:
    """Of all kinds together, with the status of each, which changes annotations, too. Whoever else has a kind of such a
    name in one of these groups is asked as well."""
    groups = sorted({kind.partition(".")[2] for kind in kinds()})
    plurals = sorted({kind.partition(".")[0] for kind in kinds()})
    resources = [name for plural in plurals for name in (plural, f"{plural}/status")]
    return "".join(
        (
            _wrapped("      - apiGroups: [", [each or '""' for each in groups]),
            '        apiVersions: ["*"]\n        operations: [CREATE, UPDATE]\n',
            _wrapped("        resources: [", resources),
        )
    )


def _wrapped(before: str, words: list[str]) -> str:
    indent = " " * 12
    return textwrap.fill(f"{before}{', '.join(words)}]", 120, subsequent_indent=indent) + "\n"


def _names(place: str) -> str:
    """A list of names, or of such lists."""
    steps = place.split(".")
    found = _of("it", steps)
    return found if any(step.endswith(("[]", "{}")) for step in steps) else f"[{found}]"


def _of(above: str, steps: list[str]) -> str:
    """A CEL expression of what stands there; empty where a part is missing."""
    found = above
    for at, step in enumerate(steps):
        found += f".?{step.rstrip('[]{}')}"
        each, rest = f"x{at}", steps[at + 1 :]
        if step.endswith("[]"):
            return f"{found}.orValue([]).map({each},\n        {_of(each, rest)})"
        if step.endswith("{}"):
            inside = _of(f"{found}[{each}]", rest)
            return f"{found}.orValue({{}}).map({each},\n        {inside})"
    if steps[-1] != "queue":
        found += ".?annotations[?variables.key]"
    return f'{found}.orValue("")'
