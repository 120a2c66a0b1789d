"""Strategic merge patches: as a JSON merge patch, but lists of the built-in kinds merge by key, and directives say
what merging cannot: ``$patch``, ``$deleteFromPrimitiveList``, ``$setElementOrder`` and ``$retainKeys``.
"""

import copy
from typing import Any

from trainmaster.local.apiserver.objects import builtin_types as shape

_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_PATCH = "$patch"


class BadPatch(Exception):
    """A patch that cannot be applied; the message says which part of it."""


def merge(original: dict[str, Any], patch: dict[str, Any], kind: str) -> dict[str, Any]:
    """The object after a patch; neither argument is changed. Raises BadPatch."""
    return _merge_object(copy.deepcopy(original), copy.deepcopy(patch), kind, ())


def _merge_object(target: dict[str, Any], patch: dict[str, Any], kind: str, path: tuple[str, ...]) -> dict[str, Any]:
    directive = patch.pop(_PATCH, None)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadPatch(f"Unknown patch directive: {directive}")
    _retain(target, patch)
    before = {key: list(value) for key, value in target.items() if isinstance(value, list)}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        _merge_field(target, key, value, kind, (*path, key))
    for key, value in patch.items():
        if key.startswith(_DELETE):
            _delete_primitives(target, key.removeprefix(_DELETE), value)
    for key, value in patch.items():
        if key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            _order(target, name, value, before.get(name, []), shape.merge_field(kind, (*path, name)))
    return target


def _retain(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Only the named keys stay: of a union, setting one member unsets the others."""
    kept = patch.pop(_RETAIN, None)
    if kept is None:
        return
    if not isinstance(kept, list):
        raise BadPatch(f"{_RETAIN} must be a list of names")
    for key in [key for key in target if key not in kept]:
        del target[key]


def _merge_field(target: dict[str, Any], key: str, value: Any, kind: str, path: tuple[str, ...]) -> None:
    if value is None:
        target.pop(key, None)
    elif isinstance(value, dict):
        before = target.get(key)
        target[key] = _merge_object(before if isinstance(before, dict) else {}, value, kind, path)
    elif isinstance(value, list):
        before = target.get(key)
        target[key] = _merge_list(before if isinstance(before, list) else [], value, kind, path)
    else:
        target[key] = value


def _merge_list(target: list[Any], patch: list[Any], kind: str, path: tuple[str, ...]) -> list[Any]:
    field = shape.merge_field(kind, path)
    key = field.merge_key if field else None
    if key is None:
        return _plain(patch)
    before = list(target)
    if key == "":
        target += [each for each in patch if each not in target]
        return _ordered(target, patch, before, key)
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in patch):
        return [each for each in patch if _PATCH not in each]
    for each in patch:
        _merge_item(target, each, key, kind, path)
    return _ordered(target, patch, before, key)


def _plain(patch: list[Any]) -> list[Any]:
    """A list that is replaced as a whole; a directive in it has nothing to say."""
    return [each for each in patch if not (isinstance(each, dict) and set(each) == {_PATCH})]


def _merge_item(target: list[Any], item: Any, key: str, kind: str, path: tuple[str, ...]) -> None:
    if not isinstance(item, dict) or key not in item:
        raise BadPatch(f"map: {item} does not contain declared merge key: {key}")
    place = next((index for index, each in enumerate(target) if _key_of(each, key) == item[key]), None)
    if item.get(_PATCH) == "delete":
        target[:] = [each for each in target if _key_of(each, key) != item[key]]
    elif place is None:
        target.append(_merge_object({}, item, kind, path))
    else:
        target[place] = _merge_object(target[place], item, kind, path)


def _key_of(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _delete_primitives(target: dict[str, Any], key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise BadPatch(f"{_DELETE}{key} must be a list")
    if isinstance(target.get(key), list):
        target[key] = [each for each in target[key] if each not in values]


def _order(target: dict[str, Any], name: str, order: Any, before: list[Any], field: shape.Field | None) -> None:
    items = target.get(name)
    if isinstance(order, list) and isinstance(items, list) and field is not None and field.merge_key is not None:
        target[name] = _ordered(items, order, before, field.merge_key)


def _ordered(items: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """What the patch names, as it names it; what only the server has goes before its first old successor among them."""

    def identity(item: Any) -> Any:
        return _key_of(item, key) if key else item

    wanted, old = [identity(each) for each in order], [identity(each) for each in before]
    named = sorted((each for each in items if identity(each) in wanted), key=lambda each: wanted.index(identity(each)))
    others = [each for each in items if identity(each) not in wanted]
    result: list[Any] = []
    for each in named:
        while others and _precedes(identity(others[0]), identity(each), old):
            result.append(others.pop(0))
        result.append(each)
    return result + others


def _precedes(left: Any, right: Any, order: list[Any]) -> bool:
    return left in order and right in order and order.index(left) < order.index(right)
