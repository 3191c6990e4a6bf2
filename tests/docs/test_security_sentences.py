"""Each sentence of docs/security.md that promises something has a test. Its tables of rights are compared with the
manifests in tests/manifests/test_security_page.py."""

import re
from pathlib import Path

import pytest

from tests.docs.test_guarantees import SOURCES

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()
# How the sentence begins, and the test. Of a list, the sentence before it stands for all of it.
TESTS = {
    "A test compares this page": "test_each_right_has_its_sentence_and_each_sentence_its_right",
    "**Of an agent**": "test_a_strangers_report_is_refused_and_logged",
    "**Of an elastic Job's coordinator**": "test_at_the_latest_after_thirty_seconds",
    "**Of a user**": "test_pods_of_other_namespaces_are_only_counted",
    "**Of `lockstep-central`**": "test_the_scheduler_is_granted_what_it_calls_and_nothing_else",
    "With `lockstep-jobs` in all namespaces": "test_the_job_controller_is_granted_what_it_calls_and_nothing_else",
    "Without that role the token": "test_without_the_role_for_jobs_no_pod_is_created",
    "**A reader of the [web console]": "test_a_view_shows_what_the_user_may_see",
    "It is served on the loopback": "test_it_listens_on_the_loopback_alone",
    "`components/console` serves it": "test_the_network_is_reached_over_tls_only",
    "**Who knows the secret": "test_the_proxy_names_the_user",
    "**What-if in the console**": "test_it_asks_with_the_token_of_whoever_asks",
    "It [cannot show": "test_it_takes_no_more_memory_than_it_may",
    "**A client with bad tokens**": "test_bad_tokens_of_one_account_leave_others_behind_a_proxy_their_part",
    "Tokens that name no account": "test_bad_tokens_of_one_account_leave_others_behind_a_proxy_their_part",
    "A flood with an invented account": "test_invented_accounts_leave_those_that_were_accepted_their_part",
    "**A client without a token**": "test_a_connection_must_show_a_token_in_time",
    "The component `network`": "test_policies_speak_of_the_pods_that_there_are",
    "`--namespaces=team-a,team-b` limits": "test_the_job_controllers_rights_can_be_bound_in_a_namespace",
    "The component `namespaces` shows": "test_the_component_for_namespaces",
    "`daemonset/user-roles.yaml` adds": "test_users_rights_aggregate_to_the_roles_of_every_cluster",
    "`view` may read Jobs": "test_users_rights_aggregate_to_the_roles_of_every_cluster",
    "Queues and HyperNodes belong": "test_users_rights_aggregate_to_the_roles_of_every_cluster",
    "`view` may read and `admin` write": "test_users_rights_aggregate_to_the_roles_of_every_cluster",
    "The verb `use` on a queue": "test_naming_a_queue_needs_the_verb_use",
    "No shipped role has it": "test_no_shipped_role_may_name_any_queue",
    "`lockstep topology` needs": "test_nodes_are_for_those_who_may_get_nodes",
    "Pods of namespaces that the asker": "test_pods_of_other_namespaces_are_only_counted",
    "`lockstep explain` needs": "test_gangs_are_for_those_who_may_get_something_of_the_namespace",
    "These name gangs, Jobs and budgets": "test_for_whom_a_pod_is_evicted",
    "Texts of a tenant": "test_no_answer_names_what_its_asker_may_not_see",
    "A controller counts as owner": "test_an_owner_of_another_namespace_is_none",
    "With `--names-in-events all`": "test_for_whom_a_pod_is_evicted",
    "The scheduler's log names all": "test_for_whom_a_pod_is_evicted",
    "`lockstep explain` names": "test_sentences_name_no_gang_that_the_asker_may_not_see",
    "A coordinator checks the token": "test_a_stranger_is_refused_before_the_body_is_read",
    "Plugin svc's NetworkPolicy": "test_its_port_is_open_to_the_jobs_pods_only",
    "Metrics and probes are served": "test_collections_of_metrics_are_bounded_and_delay_no_probe",
    "Metrics carry no names": "test_random_texts_in_rich_objects",
}
# What the product does not do: how Kubernetes answers readers, and what stands in the Events as data.
NO_PROMISES = (
    "Rights of each part", "[Bind it where", "OpenShift's own role",
    "Everybody who may read a namespace", "They do say", "how much is free", "names of nodes", "priorities and expected",
)  # fmt: skip


def sentences() -> list[str]:
    """Of the paragraphs and lists, without headings, tables and code."""
    text = re.sub(r"```.*?```|^\|.*?$|^#.*?$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    found = []
    for part in re.split(r"\n\n|^- ", text, flags=re.MULTILINE):
        line = " ".join(part.split())
        found += [each for each in re.split(r"(?<=[.:]) (?=[A-Z`*\[])", line) if each]
    return found


def test_each_sentence_has_a_test() -> None:
    known = (*TESTS, *NO_PROMISES)
    assert [each for each in sentences() if not each.startswith(known)] == []


def test_no_sentence_is_listed_that_has_gone() -> None:
    found = sentences()
    listed = (*TESTS, *NO_PROMISES)
    assert [each for each in listed if not any(one.startswith(each) for one in found)] == []


@pytest.mark.parametrize("name", sorted({*TESTS.values()}))
def test_the_test_exists(name: str) -> None:
    assert f"def {name}(" in SOURCES
