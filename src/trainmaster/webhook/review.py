"""AdmissionReview on the wire: what the API server asks, and what it is answered. Versions v1 and v1beta1 look alike,
and an answer is in the version of its question.
"""

import base64
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from trainmaster.core.errors import Trainmaster, located
from trainmaster.core.ids import Resource
from trainmaster.core.nesting import TOO_DEEP, members

Operation = dict[str, Any]
"""One operation of a JSON patch."""


class BadReview(Trainmaster):
    """A request that is no question to us; the sentence says why."""


class Unreadable(Trainmaster):
    """An object of a review that cannot be read; the sentence says why."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.group}/{self.version}"


_NONE = msgspec.Raw(b"null")


class Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: GroupVersionKind
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = _NONE
    old_object: msgspec.Raw = _NONE


class Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: Literal["admission.k8s.io/v1", "admission.k8s.io/v1beta1"]
    kind: Literal["AdmissionReview"]
    request: Request


_decode = msgspec.json.Decoder(Review).decode


def read(body: bytes, resources: Sequence[Resource]) -> Review:
    """The question in a request's body; it must be about one of these resources, the versions of one."""
    try:
        review = _review(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"the body is no AdmissionReview of v1 or v1beta1: {located(error)}") from error
    expected = [GroupVersionKind(r.group, r.version, r.kind) for r in resources]
    if review.request.kind not in expected:
        raise BadReview(
            f"this path reviews {' and '.join(map(str, expected))}, not {review.request.kind}; "
            "correct the rules or the path of the webhook configuration"
        )
    return review


def _review(body: bytes) -> Review:
    try:
        return _decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        # An object of it is nested too deeply, or no JSON. Without its objects the review may be one.
        review = members(body)
        request = members(review.get(b"request", b""))
        objects = {name: msgspec.Raw(request.pop(name, b"null")) for name in (b"object", b"oldObject")}
        asked = _decode(_joined({**review, b"request": _joined(request)}))
        found = msgspec.structs.replace(asked.request, object=objects[b"object"], old_object=objects[b"oldObject"])
        return msgspec.structs.replace(asked, request=found)


def _joined(values: dict[bytes, bytes]) -> bytes:
    """The opposite of ``members``."""
    return b"{" + b",".join(b'"' + name + b'":' + value for name, value in values.items()) + b"}"


def parsed(raw: msgspec.Raw) -> dict[str, Any] | None:
    """An object of the request as a dict; None when there is none."""
    try:
        found = msgspec.json.decode(raw)
    except RecursionError as error:
        raise Unreadable(TOO_DEEP) from error
    except ValueError as error:
        raise Unreadable(f"object: it cannot be read: {error}") from error
    if found is None or isinstance(found, dict):
        return found
    raise Unreadable("object: it is no JSON object")


def allowed(review: Review, *, warnings: Sequence[str] = (), patch: Sequence[Operation] = ()) -> bytes:
    response: dict[str, Any] = {"allowed": True}
    if warnings:
        response["warnings"] = list(warnings)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _answer(review, response)


def refused(review: Review, errors: Sequence[str], *, warnings: Sequence[str] = ()) -> bytes:
    """As the API server itself refuses what its schema forbids: kubectl prints every cause on a line of its own."""
    request = review.request
    causes = [cause_of(error) for error in errors]
    status = {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "; ".join(errors),
        "details": {"name": request.name, "group": request.kind.group, "kind": request.kind.kind, "causes": causes},
    }
    response: dict[str, Any] = {"allowed": False, "status": status}
    return _answer(review, response | ({"warnings": list(warnings)} if warnings else {}))


def cause_of(error: str) -> dict[str, str]:
    """An error as an entry of a Status' ``details.causes``."""
    field, colon, message = error.partition(": ")
    if not colon:
        return {"reason": "FieldValueInvalid", "message": error}
    return {"reason": "FieldValueInvalid", "field": field, "message": message}


def _answer(review: Review, response: dict[str, Any]) -> bytes:
    uid = review.request.uid
    answer = {"apiVersion": review.api_version, "kind": review.kind, "response": {"uid": uid, **response}}
    return msgspec.json.encode(answer)
