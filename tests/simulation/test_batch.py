"""Stories around CronJobs, JobFlows and Commands, with a centre that falls whenever it likes and an API that
refuses: no promise breaks, nothing is made twice, and what is told in the end comes to pass."""

from hypothesis import given, settings
from hypothesis import strategies as st

from central.model.decisions import Create, Decision, Delete, SetStatus
from tests.central.controllers.job.job_api import Api, job
from tests.central.controllers.test_cronjob import cron
from tests.central.controllers.test_jobflow import flow, step, template
from tests.effort import examples

POLICIES = st.sampled_from(["Allow", "Forbid", "Replace"])
ACTS = st.one_of(
    st.tuples(st.just("cron"), POLICIES, st.sampled_from(["* * * * *", "@every 45s", "often"])),
    st.tuples(st.just("flow"), st.sampled_from(["retain", "delete"]), st.booleans()),
    st.tuples(st.just("template"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("command"), st.sampled_from(["AbortJob", "ResumeJob", "RestartJob", "Tea"])),
    st.tuples(st.just("finish"), st.sampled_from([0, 0, 1])),
    st.tuples(st.just("fall")),
    st.tuples(st.just("wait"), st.sampled_from([5.0, 20.0, 70.0])),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
)


class SimulationResult:
    def __init__(self) -> None:
        self.api = Api()
        self.api.refuses = self._refuses
        self.refusals = 0
        self.commands = 0
        self.api.apply(job({"w": 1}))

    def _refuses(self, decision: Decision) -> str:
        asked = isinstance(decision, Create | Delete | SetStatus)
        if asked and self.refusals and decision.kind in ("Job", "Command", "CronJob", "JobFlow"):  # type: ignore[union-attr]  # asked says which
            self.refusals -= 1
            return "not now"
        return ""

    def act(self, what: str, *how: object) -> None:
        api = self.api
        match what:
            case "cron":
                api.apply(cron(str(how[1]), concurrencyPolicy=how[0]))
            case "flow":
                steps = (step("a"), step("b", "a")) if how[1] else (step("b"),)
                api.apply(flow(*steps, jobRetainPolicy=how[0]))
            case "template":
                api.apply(template(str(how[0])))
            case "command":
                self.commands += 1
                target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"}
                meta = {"name": f"k-{self.commands}"}
                raw = {"kind": "Command", "metadata": meta, "target": target}
                api.apply({**raw, "action": str(how[0])})
            case "finish":
                for name, phase in api.pods().items():
                    if phase == "Running":
                        api.end(name, int(str(how[0])))
            case "fall":
                api.fall()
            case "wait":
                api.step(float(str(how[0])))
            case "refuse":
                self.refusals = int(str(how[0]))
            case _:
                raise AssertionError(what)
        api.step(0.5)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(ACTS, max_size=14))
def test_no_story_breaks_a_promise(story: list[tuple[object, ...]]) -> None:
    told = SimulationResult()
    for what, *how in story:
        told.act(str(what), *how)
    told.refusals = 0
    for seconds in (1.0, 12.0, 12.0):
        told.api.wait(seconds)
    made = {name: n for (kind, name, *_), n in told.api.made.items() if kind == "Job"}
    assert set(made.values()) <= {1}, f"Jobs were made twice: {made}"
    assert not told.api.names("Command"), "a Command was left lying"
