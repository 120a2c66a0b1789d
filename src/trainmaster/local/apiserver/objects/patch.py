"""JSON merge patch (RFC 7396) and JSON patch (RFC 6902). Nobody's argument is changed in place."""

import copy
from typing import Any

from trainmaster.local.apiserver.http.status import Refusal, bad_request

# Kubernetes' own limit: a copy operation can double a document.
MOST_OPERATIONS = 10_000
_MISSING = object()


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396: null removes, objects are merged, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def apply_operations(target: Any, operations: Any) -> Any:
    """RFC 6902. Raises Refusal: 400 for what is no JSON patch; 422, without a reason, for one that does not fit."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise Refusal(413, "RequestEntityTooLarge", message)
    result = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: an operation of a JSON patch is an object")
        result = _operate(result, operation)
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path"))
    match kind:
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _set(document, path, _value(operation))
        case "test":
            # A missing member counts as null, as in Kubernetes' own implementation.
            found = _look(document, path)
            if (None if found is _MISSING else found) != operation.get("value"):
                raise _unfit()
            return document
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation.get("from")))))
        case "move":
            source = _pointer(operation.get("from"))
            if path[: len(source)] == source and len(path) > len(source):
                raise _unfit()  # nothing can be moved into itself
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case _:
            raise _unfit()


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise _unfit()
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise _unfit()
    return copy.deepcopy(operation["value"])


def _add(document: Any, path: list[str], value: Any) -> Any:
    parent = _look(document, path[:-1])
    if path and isinstance(parent, list):
        index = len(parent) if path[-1] == "-" else _index(path[-1], len(parent) + 1)
        parent.insert(index, value)
        return document
    return _set(document, path, value)


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _look(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(path[-1], len(parent))] = value
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise _unfit()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _get(document, path)
    if not path:
        return None
    parent = _look(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _get(document: Any, path: list[str]) -> Any:
    found = _look(document, path)
    if found is _MISSING:
        raise _unfit()
    return found


def _look(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and _is_index(part, len(document)):
            document = document[int(part)]
        else:
            return _MISSING
    return document


def _index(part: str, length: int) -> int:
    if not _is_index(part, length):
        raise _unfit()
    return int(part)


def _is_index(part: str, length: int) -> bool:
    return part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < length


def _unfit() -> Refusal:
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", {})
