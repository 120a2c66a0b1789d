"""What a CEL expression is made of, as closures: each takes the variables in sight and answers its value.

Every operation takes from a budget, so that no rule can hold up the server.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trainmaster.local.apiserver.schema.cel_value import (
    NONE,
    CelError,
    Optional,
    Value,
    iterated,
    kind,
    no_overload,
    select_optional,
    weight,
)

STEPS = 1_000_000


class TooExpensive(CelError):
    """The steps of one validation are used up."""


class Budget:
    """The steps that all rules of one object have together."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def take(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooExpensive("operation cancelled: actual cost limit exceeded")


class Scope(NamedTuple):
    """The variables in sight."""

    names: dict[str, Value]
    budget: Budget

    def bound(self, name: str, value: Value) -> "Scope":
        return Scope({**self.names, name: value}, self.budget)


Node = Callable[[Scope], Value]


def literal(value: Value) -> Node:
    return lambda _: value


def variable(name: str) -> Node:
    return lambda scope: scope.names[name]


def call(function: Callable[..., Value], *nodes: Node) -> Node:
    def node(scope: Scope) -> Value:
        arguments = [each(scope) for each in nodes]
        scope.budget.take(1 + weight(arguments))
        return function(*arguments)

    return node


def listed(nodes: list[Node]) -> Node:
    return lambda scope: [each(scope) for each in nodes]


def mapped(pairs: list[tuple[Node, Node]]) -> Node:
    return lambda scope: {key(scope): value(scope) for key, value in pairs}


def negated(value: Value) -> bool:
    if isinstance(value, bool):
        return not value
    raise no_overload("!_", value)


def choice(condition: Node, chosen: Node, otherwise: Node) -> Node:
    def node(scope: Scope) -> Value:
        value = condition(scope)
        if not isinstance(value, bool):
            raise no_overload("_?_:_", value)
        return chosen(scope) if value else otherwise(scope)

    return node


def logic(left: Node, right: Node, *, absorbing: bool) -> Node:
    """``||`` and ``&&`` do not care which side is wrong: if one side decides, the other's error is forgotten."""
    name = "_||_" if absorbing else "_&&_"

    def node(scope: Scope) -> Value:
        first = _truth(left, scope, name)
        if first is absorbing:
            return absorbing
        second = _truth(right, scope, name)
        if second is absorbing:
            return absorbing
        for each in (first, second):
            if isinstance(each, CelError):
                raise each
        return not absorbing

    return node


def _truth(node: Node, scope: Scope, name: str) -> bool | CelError:
    try:
        value = node(scope)
    except TooExpensive:
        raise
    except CelError as error:
        return error
    return value if isinstance(value, bool) else no_overload(name, value)


def has(operand: Node, field: str) -> Node:
    def node(scope: Scope) -> bool:
        scope.budget.take()
        value = operand(scope)
        if isinstance(value, Optional):
            return select_optional(value, field).has_value
        if not isinstance(value, dict):
            raise no_overload("has", value)
        return field in value

    return node


def _quantifier(node: Node, variable: str, body: Node, *, absorbing: bool) -> Node:
    """``all`` and ``exists``: as ``&&`` and ``||`` over the elements."""

    def quantify(scope: Scope) -> bool:
        failure: CelError | None = None
        for each in iterated(node(scope)):
            scope.budget.take()
            value = _truth(body, scope.bound(variable, each), "loop condition")
            if value is absorbing:
                return absorbing
            failure = value if isinstance(value, CelError) else failure
        if failure:
            raise failure
        return not absorbing

    return quantify


def _all(node: Node, variable: str, body: Node) -> Node:
    return _quantifier(node, variable, body, absorbing=False)


def _exists(node: Node, variable: str, body: Node) -> Node:
    return _quantifier(node, variable, body, absorbing=True)


def _chosen(node: Node, variable: str, condition: Node, scope: Scope) -> Iterator[Scope]:
    for each in iterated(node(scope)):
        scope.budget.take()
        inner = scope.bound(variable, each)
        value = condition(inner)
        if not isinstance(value, bool):
            raise no_overload("loop condition", value)
        if value:
            yield inner


def _exists_one(node: Node, variable: str, body: Node) -> Node:
    return lambda scope: sum(1 for _ in _chosen(node, variable, body, scope)) == 1


def _filter(node: Node, variable: str, body: Node) -> Node:
    return lambda scope: [inner.names[variable] for inner in _chosen(node, variable, body, scope)]


def _transformed(node: Node, variable: str, body: Node) -> Node:
    return _filter_transformed(node, variable, literal(True), body)


def _filter_transformed(node: Node, variable: str, condition: Node, body: Node) -> Node:
    return lambda scope: [body(inner) for inner in _chosen(node, variable, condition, scope)]


def _opt_map(node: Node, variable: str, body: Node) -> Node:
    def opt_map(scope: Scope) -> Optional:
        inner = _present(node, variable, scope)
        return Optional(True, body(inner)) if inner else NONE

    return opt_map


def _opt_flat_map(node: Node, variable: str, body: Node) -> Node:
    def opt_flat_map(scope: Scope) -> Value:
        inner = _present(node, variable, scope)
        return body(inner) if inner else NONE

    return opt_flat_map


def _present(node: Node, variable: str, scope: Scope) -> Scope | None:
    value = node(scope)
    if kind(value) != "optional":
        raise no_overload("optMap", value)
    return scope.bound(variable, value.value) if value.has_value else None


MACROS: dict[str, dict[int, Callable[..., Node]]] = {
    "all": {1: _all},
    "exists": {1: _exists},
    "exists_one": {1: _exists_one},
    "existsOne": {1: _exists_one},
    "filter": {1: _filter},
    "map": {1: _transformed, 2: _filter_transformed},
    "optMap": {1: _opt_map},
    "optFlatMap": {1: _opt_flat_map},
}
