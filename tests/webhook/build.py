"""Reviews as the API server sends them, and certificates of a given day."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tests.build import kind_of
from trainmaster.webhook.review import Request

Json = dict[str, Any]

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def a_review(job: Json, *, old: Json | None = None, version: str = "v1", **request: Any) -> Json:
    """An AdmissionReview of the job: it is updated when there is an old one, else created."""
    resource = kind_of(job).resource
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "name": job["metadata"].get("name", ""),
            "namespace": job["metadata"].get("namespace", "ml"),
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": "somebody"},
            "object": job,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def a_request(job: Json, *, old: Json | None = None, **request: Any) -> Request:
    return msgspec.json.decode(msgspec.json.encode(a_review(job, old=old, **request)["request"]), type=Request)


def patch_in(response: Json) -> list[Json]:
    """The operations that a response asks for."""
    assert response["patchType"] == "JSONPatch"
    operations: list[Json] = msgspec.json.decode(base64.b64decode(response["patch"]))
    return operations
