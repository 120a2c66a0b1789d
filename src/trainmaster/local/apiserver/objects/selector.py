"""Label and field selectors: what a list or a watch is about. The words of a refusal are Kubernetes'."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from trainmaster.local.apiserver.http.status import bad_request
from trainmaster.local.apiserver.objects.field_error import quoted
from trainmaster.local.apiserver.objects.label import key_complaints, value_complaints
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.store.store import Stored

_NAMES = ("metadata.name", "metadata.namespace")
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
FIELDS: Mapping[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "events": frozenset(
        {"reason", "reportingComponent", "source", "type"} | {f"involvedObject.{field}" for field in _INVOLVED}
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "services": frozenset({"spec.clusterIP", "spec.type"}),
    "jobs.batch": frozenset({"status.successful"}),
}

_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<symbol>[=!(),<>]+)|(?P<word>[^=!(),<> \t\r\n]+))?")
_SYMBOLS = {"=", "==", "!=", "!", "(", ")", ",", ">", "<"}
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_END = ("", "")


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class _Slim(msgspec.Struct):
    metadata: _Labelled


_decode_labels = msgspec.json.Decoder(_Slim).decode

Test = Callable[[Mapping[str, str]], bool]


class FieldTerm(NamedTuple):
    field: str
    value: str
    is_equal: bool


class Selection:
    """All of a resource, or those that two selectors agree on."""

    def __init__(self, labels: list[Test], fields: list[FieldTerm]) -> None:
        self._labels = labels
        self._fields = fields
        self.is_everything = not labels and not fields
        self._needs_object = any(term.field not in _NAMES for term in fields)

    def matches(self, stored: Stored) -> bool:
        if self.is_everything:
            return True
        if self._labels:
            labels = _decode_labels(stored.body).metadata.labels
            if not all(test(labels) for test in self._labels):
                return False
        obj = stored.decode() if self._needs_object else {}
        return all((_field(stored, obj, term.field) == term.value) is term.is_equal for term in self._fields)

    @property
    def name(self) -> str:
        """The only name that can match, if there is one: then other objects need not be compared."""
        return next((term.value for term in self._fields if term.field == _NAMES[0] and term.is_equal), "")


EVERYTHING = Selection([], [])


def selection(served: Served, labels: str, fields: str) -> Selection:
    """Raises Refusal (400) for what cannot be read."""
    if not labels and not fields:
        return EVERYTHING
    return Selection(_label_tests(labels), _field_terms(served, fields))


# -- fields ------------------------------------------------------------------------------------------------


def _field(stored: Stored, obj: dict[str, Any], field: str) -> str:
    if field == "metadata.name":
        return stored.place.name
    if field == "metadata.namespace":
        return stored.place.namespace
    if field == "source":
        return str(obj.get("source", {}).get("component") or obj.get("reportingComponent", ""))
    if field == "status.successful":
        return str(obj.get("status", {}).get("succeeded", 0))
    value: Any = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool) or field in ("spec.unschedulable", "spec.hostNetwork"):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _field_terms(served: Served, text: str) -> list[FieldTerm]:
    terms = []
    for part in sorted(re.split(r"(?<!\\)(?:\\\\)*,", text)):
        if not part:
            continue
        found = re.search(r"!=|==|=", part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[: found.start()], _unescaped(part[found.end() :])
        if field == "" and value == "":
            continue
        _require_known(served, field)
        terms.append(FieldTerm(field, value, found[0] != "!="))
    return terms


def _require_known(served: Served, field: str) -> None:
    if field in _NAMES and (served.namespaced or field == _NAMES[0] or served.definition is not None):
        return
    known = FIELDS.get(str(served.resource)) if served.definition is None else None
    if known is not None and field in known:
        return
    if known is None and served.definition is None:
        only = ", ".join(quoted(name) for name in _NAMES)
        raise bad_request(f"{quoted(field)} is not a known field selector: only {only}")
    raise bad_request(f"field label not supported: {field}")


def _unescaped(value: str) -> str:
    wrong = re.search(r"\\(?:[^\\,=]|$)", re.sub(r"\\[\\,=]", "", value))
    if wrong:
        raise bad_request(f"invalid field selector: invalid escape sequence: {wrong[0]}")
    if re.search(r"[,=]", re.sub(r"\\.", "", value)):
        stray = re.search(r"[,=]", re.sub(r"\\.", "", value))
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(stray[0]) if stray else 0}")
    return re.sub(r"\\(.)", r"\1", value)


# -- labels ------------------------------------------------------------------------------------------------


def _label_tests(text: str) -> list[Test]:
    return _LabelParser(text).parse() if text else []


def _tokens(text: str) -> list[tuple[str, str]]:
    """Pairs of class ("symbol", "word", "error") and text, ended by a pair of empty strings."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.end() == position:
            break
        position = match.end()
        if match["word"]:
            found.append(("word", match["word"]))
        elif match["symbol"]:
            position = match.start("symbol") + _symbol_length(match["symbol"])
            symbol = text[match.start("symbol") : position]
            found.append(("symbol", symbol))
    found.append(_END)
    return found


def _symbol_length(run: str) -> int:
    return len(run[:2]) if run[:2] in _SYMBOLS else 1


class _LabelParser:
    """One requirement after the other: ``key``, ``!key``, ``key OP value``, ``key [not]in (value, …)``."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0

    def parse(self) -> list[Test]:
        tests: list[Test] = []
        while True:
            kind, literal = self._peek()
            if (kind, literal) == _END:
                return tests
            if kind != "word" and literal != "!":
                raise bad_request(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                tests.append(self._requirement())
            except ValueError as error:
                raise bad_request(f"unable to parse requirement: {error}") from None
            kind, literal = self._next()
            if (kind, literal) == _END:
                return tests
            if literal != ",":
                raise bad_request(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self._peek()
            if kind != "word" and literal != "!":
                raise bad_request(f"found '{literal}', expected: identifier after ','")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[min(self._position, len(self._tokens) - 1)]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._position += 1
        return token

    def _requirement(self) -> Test:
        kind, key = self._next()
        is_absent = key == "!" and kind == "symbol"
        if is_absent:
            kind, key = self._next()
        if kind != "word":
            raise ValueError(f"found '{key}', expected: identifier")
        _check_key(key)
        if self._peek() in (_END, ("symbol", ",")):
            return (lambda labels: key not in labels) if is_absent else (lambda labels: key in labels)
        if is_absent:
            return lambda labels: key not in labels
        return self._operation(key)

    def _operation(self, key: str) -> Test:
        kind, operator = self._next()
        if operator in ("in", "notin") and kind == "word":
            values = self._values()
            for value in sorted(values):
                _check_value(key, value)
            if operator == "in":
                return lambda labels: labels.get(key) in values if key in labels else False
            return lambda labels: labels.get(key) not in values if key in labels else True
        if kind != "symbol" or operator not in ("=", "==", "!=", ">", "<"):
            raise ValueError(f"found '{operator}', expected: {_OPERATORS}")
        value = self._value()
        if operator in "><":
            return _comparison(key, operator, value)
        _check_value(key, value)
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value

    def _value(self) -> str:
        if self._peek() in (_END, ("symbol", ",")):
            return ""
        kind, literal = self._next()
        if kind != "word":
            raise ValueError(f"found '{literal}', expected: identifier")
        return literal

    def _values(self) -> frozenset[str]:
        _, literal = self._next()
        if literal != "(":
            raise ValueError(f"found '{literal}' expected: '('")
        kind, literal = self._peek()
        if literal == ")":
            self._next()
            return frozenset({""})
        if kind != "word" and literal != ",":
            raise ValueError(f"found '{literal}', expected: ',', ')' or identifier")
        return self._members()

    def _members(self) -> frozenset[str]:
        values = set()
        expects_word = True
        while True:
            kind, literal = self._next()
            if kind == "word" and expects_word:
                values.add(literal)
                expects_word = False
            elif literal in (",", ")") and kind == "symbol":
                if expects_word:
                    values.add("")
                expects_word = True
                if literal == ")":
                    return frozenset(values)
            elif expects_word:
                raise ValueError(f"found '{literal}', expected: ',', or identifier")
            else:
                raise ValueError(f"found '{literal}', expected: ',' or ')'")


def _comparison(key: str, operator: str, value: str) -> Test:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise ValueError(f"values[0]: Invalid value: {quoted(value)}: {detail}")
    limit = int(value)

    def test(labels: Mapping[str, str]) -> bool:
        found = labels.get(key, "")
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", found):
            return False
        return int(found) > limit if operator == ">" else int(found) < limit

    return test


def _check_key(key: str) -> None:
    complaints = key_complaints(key)
    if complaints:
        raise ValueError(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(complaints)}")


def _check_value(key: str, value: str) -> None:
    complaints = value_complaints(value)
    if complaints:
        raise ValueError(f"values[0][{key}]: Invalid value: {quoted(value)}: {'; '.join(complaints)}")
