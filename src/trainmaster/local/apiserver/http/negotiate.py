"""Content negotiation: the object, only its metadata, or a table."""

from typing import NamedTuple

from trainmaster.local.apiserver.http.status import not_acceptable

JSON = "application/json"
OFFERED = JSON
_WILDCARDS = ("*/*", "application/*")
_TABLE_VERSIONS = ("v1", "v1beta1")


class Form(NamedTuple):
    """``kind`` is "" for the object itself, else "Table", "PartialObjectMetadata" or "PartialObjectMetadataList"."""

    kind: str = ""
    version: str = "v1"


def form_of(accept: str) -> Form:
    """The first acceptable form; raises Refusal (406) if there is none."""
    if not accept.strip():
        return Form()
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type.lower() not in (JSON, *_WILDCARDS):
            continue
        words = dict(part.partition("=")[::2] for part in parameters)
        kind = words.get("as", "")
        if not kind:
            return Form()
        is_meta = words.get("g") == "meta.k8s.io" and words.get("v") in _TABLE_VERSIONS
        if is_meta and kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            return Form(kind, words["v"])
    raise not_acceptable(OFFERED)
