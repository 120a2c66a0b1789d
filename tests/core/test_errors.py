import msgspec
import pytest

from trainmaster.core.errors import ApiError, BadSpec, Conflict, Forbidden, TooManyRequests, Trainmaster, located


@pytest.mark.parametrize(
    ("said", "root", "expected"),
    [
        pytest.param("Expected `int` - at `$.spec.x`", "", "spec.x: Expected `int`", id="a path"),
        pytest.param("Expected `int` - at `$.spec.x`", "a.b", "a.b.spec.x: Expected `int`", id="below a root"),
        pytest.param("Expected `int` - at `$[0].x`", "a", "a[0].x: Expected `int`", id="an index"),
        pytest.param("Expected `int`", "", "object: Expected `int`", id="no path and no root"),
        pytest.param("Expected `int`", "spec.template", "spec.template: Expected `int`", id="the root itself"),
    ],
)
def test_a_decoding_error_begins_with_the_path(said: str, root: str, expected: str) -> None:
    assert located(msgspec.ValidationError(said), root) == expected


def test_a_bad_spec_lists_all_its_errors() -> None:
    bad = BadSpec("spec.a: x", "spec.b: y")

    assert bad.errors == ("spec.a: x", "spec.b: y")
    assert str(bad) == "spec.a: x; spec.b: y"


def test_an_answer_of_the_api_server_keeps_its_words() -> None:
    error = Conflict("the uid differs", code=409, reason="Conflict")

    assert (str(error), error.message, error.code, error.reason) == ("the uid differs",) * 2 + (409, "Conflict")
    assert isinstance(error, ApiError)
    assert isinstance(error, Trainmaster)


def test_too_many_requests_has_the_seconds_to_wait() -> None:
    assert TooManyRequests("slow down").retry_after == 1.0
    assert TooManyRequests("slow down", retry_after=7.0).retry_after == 7.0
    assert TooManyRequests("slow down").code == 429
    assert TooManyRequests("slow down", reason="TooManyRequests").reason == "TooManyRequests"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('pods "worker-0" is forbidden: exceeded quota: gpu', "exceeded quota: gpu"),
        ('Pod "worker-0" is invalid: spec.x: Required value', "spec.x: Required value"),
        ('pods is forbidden: User "a" cannot create resource "pods"',) * 2,
        ('admission webhook "a" denied the request: pods "b" is forbidden: no',) * 2,
    ],
)
def test_a_refusal_is_told_without_the_name_of_the_object(answer: str, why: str) -> None:
    assert Forbidden(f"create pods ml/worker-0: {answer} (403 Forbidden)", answer=answer).why == why
    assert Forbidden(answer).why == why
