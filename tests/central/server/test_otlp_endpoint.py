"""Where traces go."""

from pathlib import Path

import pytest

from central.server.otlp_endpoint import CollectorAddress, EndpointUnusable, endpoint

P = "OTEL_EXPORTER_OTLP_"


def found(url: str, **environ: str) -> CollectorAddress:
    made = endpoint(url, environ)
    assert made is not None
    return made


def test_off_by_default() -> None:
    assert endpoint("", {}) is None
    assert endpoint("", {f"{P}HEADERS": "a=b"}) is None
    assert endpoint("http://c:4318", {"OTEL_SDK_DISABLED": "TRUE"}) is None


def test_paths() -> None:
    assert str(found("http://c:4318")) == "http://c:4318/v1/traces"
    assert str(found("http://c/otlp/")) == "http://c:80/otlp/v1/traces"
    assert str(found("", **{f"{P}ENDPOINT": "http://e:1"})) == "http://e:1/v1/traces"
    both = {f"{P}ENDPOINT": "http://e:1", f"{P}TRACES_ENDPOINT": "http://t:2/in"}
    assert str(found("", **both)) == "http://t:2/in"
    assert str(found("http://flag:3", **both)) == "http://flag:3/v1/traces"
    assert found("https://c").port == 443
    assert found("https://c").tls is not None
    assert found("http://[::1]:4318").host == "::1"


def test_what_the_environment_says() -> None:
    made = found(
        "http://c:4318",
        **{
            f"{P}HEADERS": "authorization=Bearer%20abc, x-tenant=one",
            f"{P}TRACES_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod",
            "POD_NAME": "central-1",
        },
    )
    assert made.headers == (("authorization", "Bearer abc"), ("x-tenant", "one"))
    assert made.gzip
    assert dict(made.resource) == {
        **{"deployment.environment": "prod", "service.name": "lockstep-central"},
        "k8s.pod.name": "central-1",
    }
    assert "abc" not in str(made)
    assert dict(found("http://c", OTEL_SERVICE_NAME="x").resource)["service.name"] == "x"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("collector:4318", "is not a URL of a collector"),
        ("ftp://c", "is not a URL of a collector"),
        ("http://", "is not a URL of a collector"),
        ("http://c:99999", "is not a URL"),
        ("http://u:secret@c", "holds a password"),
        ("http://c?x=1", "has a query"),
        ("http://c\r\nX: y", "is not a URL of a collector"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(EndpointUnusable, match=why) as refused:
        endpoint(url, {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PROTOCOL", "grpc", r'PROTOCOL is "grpc": the scheduler sends traces by http/protobuf'),
        ("COMPRESSION", "zstd", "gzip or none"),
        ("HEADERS", "token", "is not NAME=VALUE"),
        ("HEADERS", "a=b%0d%0aX: y", "is not NAME=VALUE"),
        ("HEADERS", "a b=c", "is not NAME=VALUE"),
    ],
)
def test_variables_that_are_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(EndpointUnusable, match=why):
        endpoint("http://c", {f"{P}{name}": value})


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("rubbish")
    for file in ("ca.crt", "missing.crt"):
        with pytest.raises(EndpointUnusable, match=file):
            endpoint("https://c", {f"{P}CERTIFICATE": str(tmp_path / file)})
