"""What the life of Jobs costs the API server: the whole program on virtual time, and every call that changes something.

python -m tests.simulation.job_writes JOBS PODS     # prints the writes per Job, by verb and resource
"""

import sys
from collections import Counter

from central.kube.transport.http_client import Reply
from tests.simulation.nemesis import story

AT_S = 5.0  # when the Jobs come
OF_THE_PODS = ("pods", "pods/status", "pods/binding")
OF_THE_SCHEDULER = ("leases", "queues/status")
Writes = Counter[tuple[str, str]]  # method and resource with its subresource


class JobDay(story.Story):
    """Jobs that come at once, and no nemesis."""

    def __init__(self, jobs: int, pods: int, runs_s: int) -> None:
        self._jobs, self._pods, self._runs_s = jobs, pods, runs_s
        super().__init__(1)
        self.writes: Writes = Counter()
        self._answer = self.api.answer
        self.api.answer = self._counted  # type: ignore[method-assign]  # as an audit log would see it

    def _set_up(self, queues: dict[str, str]) -> None:
        space = {"metadata": {"name": "lockstep-system"}}
        self.user.call("POST", "/api/v1/namespaces", space)
        self.nodes.register()
        self.user.queue("default", 1000)
        for number in range(self._jobs):
            self.user.job(f"j{number}", self._pods, 0, self._runs_s)
            self.user.arrives[f"j{number}"] = AT_S
        self._start_outside()

    def _plan(self) -> None:
        """Nothing happens."""

    def _counted(self, method: str, url: str, body: bytes | None, content_type: str) -> Reply:
        if method != "GET":
            call = self.api.parse(method, url, body, content_type)
            parts = filter(None, (call.resource.plural, call.subresource))
            self.writes[method, "/".join(parts)] += 1
        return self._answer(method, url, body, content_type)


def writes_of(jobs: int, pods: int, runs_s: int = 3) -> Writes:
    """Of so many Jobs until all are Completed, beyond those of their pods, of users and of the scheduler itself."""
    day = JobDay(jobs, pods, runs_s)
    day.run()
    day.writes[("POST", "jobs")] -= jobs
    left_out = (*OF_THE_PODS, *OF_THE_SCHEDULER)
    return +Counter({key: n for key, n in day.writes.items() if key[1] not in left_out})


def main() -> None:
    jobs, pods = map(int, sys.argv[1:])
    found = writes_of(jobs, pods)
    for (method, resource), count in sorted(found.items()):
        print(f"{count / jobs:6.2f} {method} {resource}")
    print(f"{found.total() / jobs:6.2f} in all")


if __name__ == "__main__":
    main()
