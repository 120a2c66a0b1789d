"""trainmaster.kube.answer"""

import msgspec
import pytest

from tests.kube.serve import status
from trainmaster.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    Terminating,
    TooManyRequests,
    Unauthorized,
    UnknownField,
)
from trainmaster.kube.answer import name_in, refusal, written
from trainmaster.runtime.cluster import Written


@pytest.mark.parametrize(
    ("code", "reason", "meaning"),
    [
        pytest.param(400, "BadRequest", Invalid, id="400"),
        pytest.param(401, "Unauthorized", Unauthorized, id="401"),
        pytest.param(403, "Forbidden", Forbidden, id="403"),
        pytest.param(404, "NotFound", NotFound, id="404"),
        pytest.param(405, "MethodNotAllowed", ApiError, id="405"),
        pytest.param(409, "AlreadyExists", AlreadyExists, id="409 exists"),
        pytest.param(409, "Conflict", Conflict, id="409 precondition"),
        pytest.param(410, "Expired", Gone, id="410"),
        pytest.param(413, "RequestEntityTooLarge", Invalid, id="413"),
        pytest.param(422, "Invalid", Invalid, id="422"),
        pytest.param(429, "TooManyRequests", TooManyRequests, id="429"),
        pytest.param(500, "InternalError", ServerError, id="500"),
        pytest.param(503, "ServiceUnavailable", ServerError, id="503"),
        pytest.param(504, "Timeout", ServerError, id="504"),
    ],
)
def test_status_becomes_the_exception_of_its_meaning(code: int, reason: str, meaning: type[ApiError]) -> None:
    error = refusal("create pods ml/a", code, status(code, reason, "because").body, "")

    assert type(error) is meaning
    assert (error.code, error.reason) == (code, reason)
    assert str(error) == f"create pods ml/a: because ({code} {reason})"


@pytest.mark.parametrize(
    ("cause", "meaning"),
    [
        pytest.param("NamespaceTerminating", Terminating, id="the namespace is being deleted"),
        pytest.param("FieldValueInvalid", Forbidden, id="another cause"),
    ],
)
def test_a_refusal_says_that_the_namespace_is_being_deleted(cause: str, meaning: type[ApiError]) -> None:
    causes = [{"reason": cause, "message": "namespace ml is being terminated", "field": "metadata.namespace"}]
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no", "details": {"causes": causes}}
    error = refusal("create pods ml/a", 403, msgspec.json.encode(body), "")

    assert type(error) is meaning


@pytest.mark.parametrize(
    ("code", "before"),
    [
        pytest.param(400, 'DIJob in version "v1alpha1" cannot be handled as a DIJob: ', id="a body"),
        pytest.param(422, f'"" is invalid: patch: Invalid value: "{"secret" * 1000}": ', id="a patch"),
    ],
)
def test_unknown_fields_are_named_and_the_object_is_not_quoted(code: int, before: str) -> None:
    why = 'strict decoding error: unknown field "status.restarts", unknown field "status.ports.a[0]"'
    error = refusal("patch dijobs ml/a", code, status(code, "Invalid", before + why).body, "")

    assert isinstance(error, UnknownField)
    assert error.fields == ("status.restarts", "status.ports.a[0]")
    assert str(error) == f"patch dijobs ml/a: {why} ({code} Invalid)"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "no explanation", id="empty"),
        pytest.param(b"<html>\n <b>Bad   Gateway</b>", "<html> <b>Bad Gateway</b>", id="a proxy's page"),
        pytest.param(b"x" * 5000, "x" * 256, id="long"),
        pytest.param(b"\xff\xfe", "\ufffd\ufffd", id="not text"),
        pytest.param(b'{"kind":"Pod","message":"no"}', '{"kind":"Pod","message":"no"}', id="JSON of another kind"),
        pytest.param(b'{"kind":"Status","message":7}', '{"kind":"Status","message":7}', id="malformed Status"),
    ],
)
def test_unknown_body_is_quoted_in_one_short_line(body: bytes, sentence: str) -> None:
    assert str(refusal("get pods ml/a", 502, body, "")) == f"get pods ml/a: {sentence} (502)"


@pytest.mark.parametrize(
    ("code", "header", "body", "wait"),
    [
        pytest.param(429, "7", b"", 7.0, id="429 with header"),
        pytest.param(429, "", b"", 1.0, id="429 without"),
        pytest.param(429, "", b'{"kind":"Status","details":{"retryAfterSeconds":3}}', 3.0, id="429 with details"),
        pytest.param(429, "Wed, 21 Oct 2026 07:28:00 GMT", b"", 1.0, id="429 with a date"),
        pytest.param(503, "5", b"", 5.0, id="503 with header"),
    ],
)
def test_busy_server_has_the_seconds_to_wait(code: int, header: str, body: bytes, wait: float) -> None:
    error = refusal("list pods", code, body, header)

    assert isinstance(error, TooManyRequests)
    assert (error.code, error.retry_after) == (code, wait)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            b'{"kind":"Pod","spec":{"a":[1]},"metadata":{"uid":"u","resourceVersion":"12","x":{}}}',
            Written("u", 12),
            id="object",
        ),
        pytest.param(
            b'{"kind":"Status","metadata":{},"status":"Success","details":{"uid":"u"}}',
            Written("", 0),
            id="Status of a delete",
        ),
        pytest.param(b"{}", Written("", 0), id="no metadata"),
        pytest.param(b'{"metadata":{"uid":"u","resourceVersion":"x1"}}', Written("u", 0), id="version is no number"),
    ],
)
def test_write_answers_incarnation_and_version(body: bytes, expected: Written) -> None:
    assert written(body, "create pods") == expected


def test_success_without_an_object_is_an_error() -> None:
    with pytest.raises(ServerError, match="is this an API server"):
        written(b"<html>Welcome to the hotel's network", "create pods ml")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        pytest.param(msgspec.json.encode({"metadata": {"name": "a"}}), "a", id="name"),
        pytest.param(msgspec.json.encode({"metadata": {"generateName": "a-"}}), "a-", id="generated name"),
        pytest.param(b"no json", "", id="unreadable"),
    ],
)
def test_name_is_found_in_the_body_that_was_sent(body: bytes, name: str) -> None:
    assert name_in(body) == name


@pytest.mark.parametrize(
    ("header", "warnings"),
    [
        pytest.param('299 - "spec.a: is odd"', ("spec.a: is odd",), id="plain"),
        pytest.param('299 - "a \\"b\\" \\\\ c"', ('a "b" \\ c',), id="escaped"),
        pytest.param('299 - "a" "Tue, 15 Nov 1994 08:12:31 GMT"', ("a",), id="with a date"),
        pytest.param('110 proxy "Response is Stale"', (), id="of a cache"),
        pytest.param("299 - spec.a", (), id="not quoted"),
        pytest.param('299 - "', (), id="cut"),
    ],
)
def test_a_warning_of_the_api_server_is_read_from_its_header(header: str, warnings: tuple[str, ...]) -> None:
    assert written(b"{}", "create", [header]).warnings == warnings
