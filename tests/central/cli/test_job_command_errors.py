"""`lockstep job` with arguments, files and objects that are wrong."""

import io
from pathlib import Path

import pytest
import yaml

from central.cli.exit_codes import CannotDo
from central.cli.jobs import dispatch, job_run
from central.cli.main import main, parser
from central.kube.transport.http_client import Client
from tests.central.cli.run_cli import JOBS, TEMPLATE, Lockstep
from tests.flags import parsers


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["vew", "x"], "did you mean view?"),
        (
            ["list", "--wach"],
            "lockstep job list: unrecognized arguments: --wach; did you mean --watch?",
        ),
        (["view"], "lockstep: name the job: lockstep job view NAME"),
        (["view", "nope"], "lockstep: job default/nope not found"),
        (["view", "a", "-N", "b"], "only one name is allowed, not a and b"),
        (["run", "Foo"], '"Foo" is not a name: use small letters, digits'),
        (["run", "a", "-R", "cpu=x"], 'cpu: "x" is not a quantity'),
        (["run", "a", "-R", "cpu"], '"cpu" is not NAME=VALUE'),
        (["run", "a", "-r", "2", "-m", "3"], "--min 3 is more than --replicas 2"),
        (["run", "-f", "/no/such"], "lockstep: /no/such: No such file or directory"),
        (["run", "a", "-f", "/no/such"], "use either a name or --filename, not both"),
        (["list", "--context", "nope"], "nope"),
        (["logs", "nope"], "job default/nope not found"),
        (["list", "-k", "/no/such"], "kubeconfig /no/such: no such file"),
    ],
)
def test_errors_are_one_sentence(argv: list[str], output: str, lockstep: Lockstep) -> None:
    code = 3 if "not found" in output else 2
    answer = lockstep("job", *argv, code=code)
    assert output in answer
    assert len(answer.splitlines()) == 1


def test_every_verb_has_its_command() -> None:
    paths = {of.get_default("path") for of in parsers(parser()) if of.get_default("path")}
    assert len(paths) == 11
    assert all(callable(dispatch.command(path)) for path in paths)


def test_a_dry_run_asks_no_server(
    lockstep: Lockstep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    flags = ["-r", "2", "-i", "train:1", "--dry-run"]
    (made,) = yaml.safe_load_all(lockstep("job", "run", "a", *flags, "--", "true"))
    assert made["metadata"] == {"name": "a", "namespace": "default"}
    printed = lockstep("job", "run", "a", "--dry-run")
    assert not printed.endswith("\n\n")
    (container,) = yaml.safe_load(printed)["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert "command" not in container  # that of the image
    named = lockstep("job", "run", "a", "-k", "/no/such", *flags, code=2)
    assert "kubeconfig /no/such: no such file" in named


def test_files_directories_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def map_(name: str) -> str:
        return f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}"

    (tmp_path / "2.yaml").write_text(
        f"---\n---\napiVersion: v1\nkind: List\nitems: [{map_('b')}, {map_('c')}]\n---\n"
    )
    (tmp_path / "1.yml").write_text(map_("a"))
    (tmp_path / "notes.txt").write_text("[")
    assert [each["metadata"]["name"] for each in job_run.read(str(tmp_path))] == ["a", "b", "c"]
    monkeypatch.setattr("sys.stdin", io.StringIO(map_("d")))
    assert [each["metadata"]["name"] for each in job_run.read("-")] == ["d"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CannotDo, match=r"empty: contains no file that ends in \.yaml, \.yml"):
        job_run.read(str(tmp_path / "empty"))


def test_invalid_manifests(lockstep: Lockstep, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    for text, message in (
        ("a: [", "job.yaml: document 1: line 2: not YAML: "),
        ("- a", "document 1: not an object with apiVersion"),
        ("kind: Job", "document 1: apiVersion is missing"),
        ("{apiVersion: v1, kind: Pod}", "document 1: metadata is missing"),
        ("", "contains no object"),
    ):
        file.write_text(text)
        assert message in lockstep("job", "run", "-f", str(file), code=2)


def test_an_invalid_job_is_not_created(lockstep: Lockstep, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    task = {"name": "w", "replicas": 2, "template": TEMPLATE}
    both = {**task, "policies": [{"event": "PodFailed", "exitCode": 3, "action": "RestartJob"}]}
    for spec, message in (
        ({"tasks": [both]}, "job j: spec.tasks[0].policies[0]"),
        ({"tasks": [task], "minAvailable": 3}, "job j: spec.minAvailable: 3 exceeds the 2"),
        ({"tasks": [task], "plugins": {"shh": []}}, "job j: spec.plugins.shh"),
    ):
        made = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
        file.write_text(yaml.safe_dump({**made, "spec": spec}))
        assert message in lockstep("job", "run", "-f", str(file), code=2)
    assert "spec.plugins.shh" in lockstep("job", "run", "j", "--plugin", "shh", code=2)
    assert client.get(JOBS)["items"] == []


def test_files_are_read_before_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    missing = tmp_path / "missing.yaml"
    assert main(["job", "run", "-f", str(missing)]) == 2
    assert capsys.readouterr().err == f"lockstep: {missing}: No such file or directory\n"


def test_a_job_that_exists(lockstep: Lockstep) -> None:
    lockstep("job", "run", "a")
    assert lockstep("job", "run", "a", code=4) == "lockstep: job default/a already exists\n"
