"""The JSONPath of printer columns: fields, keys in quotes, indices, slices, wildcards and simple filters."""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\\])+)
      |\[(?:'(?P<single>(?:\\.|[^'\\])*)'|"(?P<double>(?:\\.|[^"\\])*)")\]
      |\[(?P<all>\*)\]
      |\[(?P<index>-?[0-9]+)\]
      |\[(?P<from>-?[0-9]*):(?P<to>-?[0-9]*)\]
      |\[\?\(\s*@(?P<path>[^=!<>\s]*)\s*(?:(?P<operator>[=!]=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*)?\)\]
    """,
    re.VERBOSE,
)


class BadPath(ValueError):
    """A path that is not understood."""


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if not match:
            raise BadPath(f"{path}: character {place + 1} is not understood")
        steps.append(_step(match))
        place = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    groups = match.groupdict()
    for word in ("field", "single", "double"):
        if groups[word] is not None:
            name = re.sub(r"\\(.)", r"\1", groups[word])
            return _everything if name == "*" and word == "field" else _field(name)
    if groups["all"]:
        return _everything
    if groups["index"] is not None:
        return _index(int(groups["index"]))
    if groups["from"] is not None:
        return _slice(_bound(groups["from"]), _bound(groups["to"]))
    return _filter(groups["path"], groups["operator"] or "", (groups["value"] or "").strip("\"'"))


def _bound(text: str) -> int | None:
    return int(text) if text else None


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _everything(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _index(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(start: int | None, end: int | None) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[start:end]

    return step


def _filter(path: str, operator: str, wanted: str) -> Step:
    def fits(item: Any) -> bool:
        found = find(path, item)
        if not operator:
            return bool(found)
        return bool(found) and (shown(found[0]) == wanted) is (operator == "==")

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (each for each in value if fits(each))

    return step


def find(path: str, obj: Any) -> list[Any]:
    """All that a path leads to; raises BadPath."""
    found = [obj]
    for step in _steps(path):
        found = [each for value in found for each in step(value)]
    return found


def shown(value: Any) -> str:
    """A value as text, in the way of kubectl."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
