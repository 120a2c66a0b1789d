import msgspec
import pytest

from tests.build import a_dijob, kind_of
from tests.webhook.build import Json, a_review, patch_in
from trainmaster.webhook.review import BadReview, Review, Unreadable, allowed, parsed, read, refused

JOB = a_dijob()
RESOURCE = kind_of(JOB).resource


def asked(**fields: object) -> Review:
    return read(msgspec.json.encode(a_review(JOB, **fields)), [RESOURCE])  # type: ignore[arg-type]


def response_of(body: bytes) -> Json:
    answer = msgspec.json.decode(body)
    assert answer["response"]["uid"] == "review-1"
    response: Json = answer["response"]
    return response


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_answer_is_in_the_version_of_its_question(version: str) -> None:
    answer = msgspec.json.decode(allowed(asked(version=version)))

    assert (answer["apiVersion"], answer["kind"]) == (f"admission.k8s.io/{version}", "AdmissionReview")
    assert answer["response"] == {"uid": "review-1", "allowed": True}


def test_warnings_and_patches_are_sent_along() -> None:
    operation = {"op": "add", "path": "/spec/x", "value": "y"}
    response = response_of(allowed(asked(), warnings=["odd"], patch=[operation]))

    assert (response["allowed"], response["warnings"], patch_in(response)) == (True, ["odd"], [operation])


def test_a_refusal_looks_like_the_api_servers_own() -> None:
    response = response_of(refused(asked(), ["spec.a: is bad", "metadata.name: 'x': too long"], warnings=["odd"]))

    assert (response["allowed"], response["warnings"]) == (False, ["odd"])
    assert response["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "spec.a: is bad; metadata.name: 'x': too long",
        "details": {
            "name": "cartpole",
            "group": "diengine.opendilab.org",
            "kind": "DIJob",
            "causes": [
                {"reason": "FieldValueInvalid", "field": "spec.a", "message": "is bad"},
                {"reason": "FieldValueInvalid", "field": "metadata.name", "message": "'x': too long"},
            ],
        },
    }


def test_an_error_without_a_path_is_a_cause_without_a_field() -> None:
    response = response_of(refused(asked(), ["nothing fits"]))

    assert response["status"]["details"]["causes"] == [{"reason": "FieldValueInvalid", "message": "nothing fits"}]


REVIEW = a_review(JOB)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"", "no AdmissionReview", id="empty"),
        pytest.param(b"{", "no AdmissionReview", id="cut"),
        pytest.param(b"\xff\xfe", "no AdmissionReview", id="binary"),
        pytest.param(b"[" * 100_000, "no AdmissionReview", id="deep"),
        pytest.param(b'{"a":' * 100_000, "no AdmissionReview", id="deep objects"),
        pytest.param(b"[]", "no AdmissionReview", id="a list"),
        pytest.param(msgspec.json.encode(JOB), "apiVersion: Invalid enum value", id="a job"),
        pytest.param(
            msgspec.json.encode(REVIEW | {"apiVersion": "admission.k8s.io/v2"}), "Invalid enum value", id="version"
        ),
        pytest.param(
            msgspec.json.encode({k: v for k, v in REVIEW.items() if k != "request"}), "`request`", id="no request"
        ),
        pytest.param(
            msgspec.json.encode(
                REVIEW | {"request": REVIEW["request"] | {"kind": {"group": "", "version": "v1", "kind": "Pod"}}}
            ),
            "this path reviews DIJob of diengine.opendilab.org/v1alpha1, not Pod of /v1; correct the rules",
            id="another kind",
        ),
    ],
)
def test_anything_else_is_told_what_is_wrong_with_it(body: bytes, said: str) -> None:
    with pytest.raises(BadReview, match=said):
        read(body, [RESOURCE])


@pytest.mark.parametrize("body", [b"[1]", b'"job"', b"3"])
def test_an_object_that_is_none_is_told(body: bytes) -> None:
    with pytest.raises(Unreadable, match="is no JSON object"):
        parsed(msgspec.Raw(body))


def test_no_object_is_none() -> None:
    assert parsed(msgspec.Raw(b"null")) is None
