"""The CEL rules of a schema: where each applies, what it sees, and what is said when it does not hold."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.schema import cel
from trainmaster.local.apiserver.schema.cel_node import Budget, TooExpensive
from trainmaster.local.apiserver.schema.cel_value import NONE, CelError, Optional, Value, to_duration, to_timestamp
from trainmaster.local.apiserver.schema.old_value import (
    ABSENT,
    Schema,
    below,
    is_unchanged,
    old_field,
    old_item,
    type_of,
)


class Rules:
    """The CEL rules of a schema and of all below it, compiled; what cannot be compiled is left to ``unsupported``."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        rules = [(rule, _program(rule["rule"])) for rule in schema.get("x-kubernetes-validations") or ()]
        self._own = [_Rule(rule, schema, program) for rule, program in rules if program is not None]
        self._all_of = [Rules({**each, "type": schema.get("type")}) for each in schema.get("allOf", ())]
        self._fields = _non_empty({key: Rules(each) for key, each in schema.get("properties", {}).items()})
        rest = {word: Rules(schema[word]) for word in ("items", "additionalProperties") if _is_schema(schema, word)}
        self._rest = _non_empty(rest)
        self._convert = _conversion(schema) if self._own else None
        self.is_empty: bool = not (
            self._own or self._fields or self._rest or any(not each.is_empty for each in self._all_of)
        )

    def errors(self, value: Any, old: Any) -> list[Cause]:
        found: list[Cause] = []
        budget = Budget()
        try:
            self.collect(value, old, "", budget, found)
        except _OutOfBudget as spent:
            found.append(spent.cause)
        return found

    def collect(self, value: Any, old: Any, path: str, budget: Budget, found: list[Cause]) -> None:
        if value is None or self.is_empty:
            return
        before = ABSENT if old is None else old
        if self._own:
            self._check_own(value, before, path, budget, found)
        for each in self._all_of:
            each.collect(value, before, path, budget, found)
        for rules, child, old_child, where in self._children(value, before, path):
            rules.collect(child, old_child, where, budget, found)

    def _check_own(self, value: Any, old: Any, path: str, budget: Budget, found: list[Cause]) -> None:
        names: dict[str, Value] = {"self": self._seen(value)}
        before = NONE if old is ABSENT else Optional(True, self._seen(old))
        for rule in self._own:
            causes = list(rule.errors(value, names, before, path, budget))
            if causes and (rule.looks_back or not is_unchanged(value, old, self._schema)):
                found += causes

    def _seen(self, value: Any) -> Value:
        return self._convert(value) if self._convert else value

    def _children(self, value: Any, old: Any, path: str) -> Iterator[tuple["Rules", Any, Any, str]]:
        if isinstance(value, list) and "items" in self._rest:
            for index, each in enumerate(value):
                yield self._rest["items"], each, old_item(self._schema, old, each), f"{path}[{index}]"
        elif isinstance(value, dict):
            for key, each in value.items():
                rules = self._fields.get(key) or self._additional(key)
                if rules:
                    yield rules, each, old_field(self._schema, old, key), below(self._schema, path, key)

    def _additional(self, key: str) -> "Rules | None":
        return None if key in self._schema.get("properties", {}) else self._rest.get("additionalProperties")


def _is_schema(schema: Schema, word: str) -> bool:
    return isinstance(schema.get(word), dict)


def _non_empty(rules: dict[str, Rules]) -> dict[str, Rules]:
    return {key: each for key, each in rules.items() if not each.is_empty}


class _OutOfBudget(Exception):
    """No further rule is evaluated; the cause says so."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Rule:
    """One entry of x-kubernetes-validations."""

    def __init__(self, rule: dict[str, Any], schema: Schema, program: cel.Program) -> None:
        self._rule = rule
        self._type = schema.get("type", "")
        self._program = program
        self._says = _program(rule.get("messageExpression", ""))
        self.looks_back = "oldSelf" in program.names
        self._is_optional = bool(rule.get("optionalOldSelf"))

    @property
    def _name(self) -> str:
        """How an error speaks of the rule."""
        return str(self._rule.get("message") or self._rule["rule"]).strip()

    def errors(self, value: Any, names: dict[str, Value], old: Optional, path: str, budget: Budget) -> Iterator[Cause]:
        if self.looks_back and not old.has_value and not self._is_optional:
            return
        scope = {**names, "oldSelf": old if self._is_optional else old.value}
        where = path or cause.NOWHERE
        try:
            result = self._program.evaluate(scope, budget)
        except TooExpensive as error:
            what = "no further validation rules will be run due to call cost exceeds limit for rule"
            raise _OutOfBudget(cause.invalid(where, self._type, f"'{error}': {what}: {self._name}")) from error
        except CelError as error:
            yield cause.invalid(where, self._type, self._failure(error))
            return
        if result is not True:
            yield self._cause(value, _joined(path, self._rule.get("fieldPath", "")), scope, budget)

    def _failure(self, error: CelError) -> str:
        if str(error).startswith("no such overload"):
            what = "call arguments did not match a supported operator, function or macro signature for rule"
            return f"'{error}': {what}: {self._name}"
        return f"{error} evaluating rule: {self._name}"

    def _cause(self, value: Any, path: str, scope: dict[str, Value], budget: Budget) -> Cause:
        detail = self._detail(scope, budget)
        is_big = self._type in ("object", "array")
        match self._rule.get("reason"):
            case "FieldValueForbidden":
                return cause.forbidden(path, detail)
            case "FieldValueRequired":
                return cause.required(path, detail)
            case "FieldValueDuplicate":
                return cause.duplicate_omitted(path) if is_big else cause.duplicate(path, value)
        return cause.invalid_omitted(path, detail) if is_big else cause.invalid(path, value, detail)

    def _detail(self, scope: dict[str, Value], budget: Budget) -> str:
        """What the message expression says, or the message where it has nothing usable to say."""
        try:
            said = self._says.evaluate(scope, budget) if self._says else ""
        except CelError:
            said = ""
        text = said.strip() if isinstance(said, str) else ""
        if text and "\n" not in text and len(text) <= _LONGEST_MESSAGE:
            return text
        return str(self._rule.get("message") or f"failed rule: {self._rule['rule']}").strip()


_LONGEST_MESSAGE = 5 * 1024


def _program(source: str) -> cel.Program | None:
    try:
        return cel.compiled(source) if source else None
    except CelError:
        return None


def _joined(path: str, field_path: str) -> str:
    """A rule's fieldPath, which is written relative to its schema, below the path of the value."""
    field = re.sub(r"\['([^']*)'\]", r"[\1]", field_path)
    return (f"{path}{field}" if path else field.lstrip(".")) or cause.NOWHERE


Convert = Callable[[Any], Value]


def _forgiving(parse: Convert, value: Any) -> Value:
    """What cannot be parsed was stored before the format was asked for; only a rule that looks at it minds."""
    try:
        return parse(value)
    except CelError:
        return value


def _conversion(schema: Schema) -> Convert | None:
    """How a value becomes what a rule sees: a number is a double, a time is a time, whatever JSON says. None where JSON
    says it all."""
    if schema.get("type") == "number":
        return lambda value: float(value) if type_of(value) == "integer" else value
    if schema.get("type") == "string":
        word = {"date-time": to_timestamp, "date": to_timestamp, "duration": to_duration}.get(schema.get("format", ""))
        return partial(_forgiving, word) if word else None
    fields = {key: _conversion(each) for key, each in schema.get("properties", {}).items()}
    known = {key: each for key, each in fields.items() if each}
    rest = _conversion(schema["additionalProperties"]) if _is_schema(schema, "additionalProperties") else None
    items = _conversion(schema["items"]) if _is_schema(schema, "items") else None
    if not (known or rest or items):
        return None

    def convert(value: Any) -> Value:
        if isinstance(value, list) and items:
            return [items(each) for each in value]
        if isinstance(value, dict):
            changes = {key: known.get(key, None if key in fields else rest) for key in value}
            return {key: change(value[key]) if (change := changes[key]) else value[key] for key in value}
        return value

    return convert
