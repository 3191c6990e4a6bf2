import pytest

from central.standalone import query_selectors
from central.standalone.api_errors import ApiError
from central.standalone.served_kinds import BUILT_IN

PODS = next(r for r in BUILT_IN if r.plural == "pods")
POD = {
    "metadata": {"name": "p", "labels": {"app": "web", "tier": "front"}},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app in (api, web),tier notin (back)", True),
        ("app,!missing", True),
        ("missing", False),
        ("app!=web", False),
        ("app notin (web)", False),
        ("missing!=x", True),
    ],
)
def test_labels(text: str, holds: bool) -> None:
    assert query_selectors.labels(text)(POD) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("metadata.name=p", True),
        ("spec.nodeName=n1,status.phase!=Failed", True),
        ("spec.nodeName=", False),
        ("spec.nodeName!=", True),
    ],
)
def test_fields(text: str, holds: bool) -> None:
    assert query_selectors.fields(PODS, text)(POD) is holds


def test_what_no_server_selects_by_is_refused() -> None:
    with pytest.raises(ApiError, match=r"field label not supported: spec\.color"):
        query_selectors.fields(PODS, "spec.color=red")
    with pytest.raises(ApiError, match="unable to parse") as error:
        query_selectors.labels("a=b=c")
    refused = ApiError(404, "NotFound", "no such", {"name": "a"})
    assert error.value.status()["code"] == 400
    assert refused.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "no such",
        "reason": "NotFound",
        "details": {"name": "a"},
        "code": 404,
    }
