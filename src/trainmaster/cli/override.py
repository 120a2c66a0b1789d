"""``--set path=value``: changes one value in every job that has this path."""

import copy
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from trainmaster.client import field
from trainmaster.client.manifest import Document, document_of, schema_of
from trainmaster.core.errors import BadConfig

_PART = re.compile(r"(?:^|\.)((?:\\.|[^.\[\]\\])+)|\[(\d{1,9})\]")
_EXAMPLE = "write it like spec.replicaSpecs.trainer.replicas=4"

Path = tuple[str | int, ...]


class Override(msgspec.Struct, frozen=True):
    """``text`` is the option as written, for errors."""

    text: str
    path: Path
    value: Any


class _Missing(Exception):
    """The job has no such path; its first ``depth`` parts exist."""

    def __init__(self, message: str, depth: int) -> None:
        super().__init__(message)
        self.depth = depth


def parse(text: str) -> Override:
    """``path=value``: names separated by dots, ``[0]`` for an item of a list, ``\\.`` for a dot in a name;
    the value is YAML."""
    written, equals, value = text.partition("=")
    if not equals or not written:
        raise BadConfig(f"--set {text}: has no path and value; {_EXAMPLE}")
    parts = list(_PART.finditer(written))
    if "".join(part[0] for part in parts) != written:
        raise BadConfig(f"--set {text}: {written!r} is not a path; {_EXAMPLE}")
    path = tuple(int(part[2]) if part[2] else part[1].replace("\\.", ".") for part in parts)
    try:
        return Override(text, path, yaml.safe_load(value))
    except yaml.YAMLError as error:
        why = getattr(error, "problem", None) or "it cannot be read"
        raise BadConfig(f"--set {text}: the value is not YAML: {why}; quote it") from error


def apply(overrides: Sequence[Override], documents: Sequence[Document]) -> list[Document]:
    """Returns the changed documents. An override that fits no job is an error."""
    changed = [
        msgspec.structs.replace(document, body=copy.deepcopy(document.body)) if document.is_job else document
        for document in documents
    ]
    jobs = [document for document in changed if document.is_job]
    for override in overrides:
        missing = [error for job in jobs if (error := _applied(override, job))]
        if len(missing) == len(jobs):
            raise BadConfig(f"--set {override.text}: {max(missing, key=lambda error: error.depth)}")
    # Parsed again: the kind or the name may have changed.
    return [_parsed(document) if document.is_job else document for document in changed]


def _parsed(document: Document) -> Document:
    parsed = document_of(document.body, document.where)
    return msgspec.structs.replace(document, resource=parsed.resource, body=parsed.body)


def _applied(override: Override, job: Document) -> _Missing | None:
    *parents, last = override.path
    try:
        place = _place(job, tuple(parents))
        if isinstance(place, dict) and isinstance(last, str):
            _check_name(job, override.path, place)
        else:
            _step(job, place, override.path)
    except _Missing as missing:
        return missing
    place[last] = override.value
    return None


def _place(job: Document, parents: Path) -> Any:
    here: Any = job.body
    for depth in range(len(parents)):
        here = _step(job, here, parents[: depth + 1])
    return here


def _step(job: Document, here: Any, path: Path) -> Any:
    """The value in ``here`` at the last part of ``path``."""
    *before, part = path
    if isinstance(here, dict) and isinstance(part, str):
        if here.get(part) is not None:
            return here[part]
        raise _Missing(
            f"{_at(job, before)} has no {part}; it has {', '.join(map(str, here)) or 'nothing'}", len(before)
        )
    if isinstance(here, list):
        if isinstance(part, int) and part < len(here):
            return here[part]
        raise _Missing(f"{_at(job, before)} is a list of {len(here)}; choose an item, from [0] on", len(before))
    noun = "an object" if isinstance(here, dict) else "a plain value"
    raise _Missing(f"{_at(job, before)} is {noun} and has no {_written([part])}", len(before))


def _check_name(job: Document, path: Path, place: dict[str, Any]) -> None:
    """A new name is accepted if the schema has it or preserves unknown fields."""
    *before, name = path
    names = field.names_at(schema_of(job.resource), tuple(before))
    if names is not None and name not in names and name not in place:
        raise _Missing(f"{_at(job, before)} has no field {name}; it has {', '.join(names)}", len(before))


def _at(job: Document, path: Sequence[str | int]) -> str:
    return f"{_written(path)} of {job}" if path else str(job)


def _written(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
