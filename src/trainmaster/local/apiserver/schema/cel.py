"""CEL, as far as rules in CustomResourceDefinitions use it: an expression becomes a tree of closures once, and is
evaluated for every write. What it does not know is an error when the expression is read, never a wrong answer.

    compiled("self.replicas <= 3").evaluate({"self": {"replicas": 2}}, Budget())
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trainmaster.local.apiserver.schema.cel_node import (
    MACROS,
    Budget,
    Node,
    Scope,
    call,
    choice,
    has,
    listed,
    literal,
    logic,
    mapped,
    negated,
    variable,
)
from trainmaster.local.apiserver.schema.cel_value import (
    BINARY,
    FUNCTIONS,
    METHODS,
    CelError,
    Value,
    negate,
    select,
    select_optional,
)

MAX_DEPTH = 60
"""Of nested expressions; beyond it lies Python's own stack."""


class Program(NamedTuple):
    """An expression that was understood, and which of ``self`` and ``oldSelf`` it looks at."""

    node: Node
    names: frozenset[str]

    def evaluate(self, names: dict[str, Value], budget: Budget) -> Value:
        """The value for these variables; raises CelError, and TooExpensive when the budget is used up."""
        try:
            return self.node(Scope(names, budget))
        except RecursionError:
            raise CelError("the expression has too many operators in a row") from None


def compiled(source: str) -> Program:
    """Read an expression; raises CelError with the place and what is not understood there."""
    parser = _Parser(source)
    node = parser.expression()
    parser.expect("")
    return Program(node, frozenset(parser.free))


def unsupported(schema: dict[str, Any]) -> list[str]:
    """The rules of an openAPIV3Schema that cannot be evaluated, each as ``path: rule: why``."""
    return [
        f"{path}: {source}: {why}"
        for path, node in _subschemas(schema, "")
        for rule in node.get("x-kubernetes-validations") or ()
        for source in filter(None, (rule.get("rule"), rule.get("messageExpression")))
        if (why := _complaint(source))
    ]


def _complaint(source: str) -> str:
    try:
        compiled(source)
    except CelError as error:
        return str(error)
    return ""


def _subschemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path or "the object", schema
    for name, each in (schema.get("properties") or {}).items():
        yield from _subschemas(each, f"{path}.{name}".lstrip("."))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _subschemas(schema["additionalProperties"], f"{path}[*]")
    if isinstance(schema.get("items"), dict):
        yield from _subschemas(schema["items"], f"{path}[]")
    for word in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(word) or ():
            yield from _subschemas(each, path)


# -- words -----------------------------------------------------------------------------------------------------

_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      |(?P<int>0[xX][0-9a-fA-F]+|[0-9]+)(?P<uint>[uU])?
      |(?P<string>[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<operator>&&|\|\||[=!<>]=|\[\?|\.\?|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
) | {"namespace", "return", "var", "void", "while"}
_LITERALS: dict[str, Value] = {"true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TYPES = ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type")


class _Token(NamedTuple):
    type: str
    text: str
    place: int


def _tokens(source: str) -> Iterator[_Token]:
    place = 0
    while place < len(source):
        match = _TOKENS.match(source, place)
        if not match or match["uint"]:
            raise CelError(f"character {place + 1}: {source[place : place + 10]!r} is not understood")
        if not match["space"]:
            yield _Token(str(match.lastgroup), match[0], place)
        place = match.end()
    yield _Token("end", "", place)


def _string(literal: str) -> str:
    is_raw = literal[0] in "rR"
    literal = literal[1:] if is_raw else literal
    width = 3 if literal[:3] in ('"""', "'''") else 1
    text = literal[width:-width]
    return text if is_raw else _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    if code in "\\'\"`?":
        return code
    if code in _ESCAPES:
        return _ESCAPES[code]
    raise CelError(f"\\{code} is not an escape sequence")


# Field names that are no identifiers are written with these in a rule.
_FIELD = re.compile(r"__(underscores|dot|dash|slash)__")
_FIELD_CHARACTERS = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def _field(name: str) -> str:
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _RESERVED | {"true", "false", "null", "in"}:
        return name[2:-2]
    return _FIELD.sub(lambda match: _FIELD_CHARACTERS[match[1]], name)


# -- grammar ---------------------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent; every method answers the node of what it has read."""

    def __init__(self, source: str) -> None:
        self._words = list(_tokens(source))
        self._at = 0
        self._depth = 0
        self._bound: list[str] = []
        # The last selection that was read: has() asks for its operand and field.
        self._selection: tuple[Node | None, Node, str] = (None, literal(None), "")
        self.free: set[str] = set()

    @property
    def _word(self) -> _Token:
        return self._words[self._at]

    def _next(self) -> _Token:
        word = self._word
        self._at += 1
        return word

    def _accept(self, *texts: str) -> str:
        """The next word, if it is one of these operators."""
        if self._word.type in ("operator", "name") and self._word.text in texts:
            return self._next().text
        return ""

    def expect(self, text: str) -> None:
        if self._word.text != text or self._word.type == "string":
            found = repr(self._word.text) if self._word.type != "end" else "the end"
            raise self._error(f"expected {text!r}, found {found}" if text else f"{found} is not understood")
        self._at += 1

    def _error(self, why: str) -> CelError:
        return CelError(f"character {self._word.place + 1}: {why}")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested expressions")
        node = self._alternative()
        if self._accept("?"):
            chosen = self._alternative()
            self.expect(":")
            node = choice(node, chosen, self.expression())
        self._depth -= 1
        return node

    def _alternative(self) -> Node:
        node = self._conjunction()
        while self._accept("||"):
            node = logic(node, self._conjunction(), absorbing=True)
        return node

    def _conjunction(self) -> Node:
        node = self._relation()
        while self._accept("&&"):
            node = logic(node, self._relation(), absorbing=False)
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while operator := self._accept("==", "!=", "<=", ">=", "<", ">", "in"):
            node = call(BINARY[operator], node, self._sum())
        return node

    def _sum(self) -> Node:
        node = self._product()
        while operator := self._accept("+", "-"):
            node = call(BINARY[operator], node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while operator := self._accept("*", "/", "%"):
            node = call(BINARY[operator], node, self._unary())
        return node

    def _unary(self) -> Node:
        operators = []
        while operator := self._accept("!", "-"):
            operators.append(operator)
        node = self._member()
        for operator in reversed(operators):
            node = call(negated if operator == "!" else negate, node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while operator := self._accept(".", ".?", "[", "[?"):
            if operator in (".", ".?"):
                node = self._after_dot(node, is_optional=operator == ".?")
            else:
                key = self.expression()
                self.expect("]")
                node = call(select_optional if operator == "[?" else select, node, key)
        return node

    def _after_dot(self, node: Node, *, is_optional: bool) -> Node:
        name = self._name()
        if not is_optional and self._accept("("):
            return self._method(node, name)
        field = _field(name)
        selected = call(select_optional if is_optional else select, node, literal(field))
        self._selection = (selected, node, field)
        return selected

    def _name(self) -> str:
        if self._word.type != "name":
            raise self._error("expected a name")
        return self._next().text

    def _primary(self) -> Node:
        word = self._next()
        match word.type, word.text:
            case "operator", "(":
                node = self.expression()
                self.expect(")")
                return node
            case "operator", "[":
                return listed(self._until("]"))
            case "operator", "{":
                return self._map()
            case "int", text:
                return literal(int(text, 0) if text[:2] in ("0x", "0X") else int(text))
            case "float", text:
                return literal(float(text))
            case "string", text:
                return literal(_string(text))
            case "name", text:
                return self._named(text)
        self._at -= 1
        raise self._error(f"{word.text!r} is not understood" if word.text else "the expression ends too early")

    def _named(self, name: str) -> Node:
        if name in _LITERALS:
            return literal(_LITERALS[name])
        if name in _RESERVED:
            raise self._error(f"{name!r} is reserved")
        if name == "has" and self._accept("("):
            return self._has()
        if name == "optional" and self._accept("."):
            name = f"optional.{self._name()}"
        if self._accept("("):
            return self._function(name)
        if name in self._bound:
            return variable(name)
        if name in ("self", "oldSelf"):
            self.free.add(name)
            return variable(name)
        if name in _TYPES:
            return literal(name)
        self._at -= 1
        raise self._error(f"undeclared reference to {name!r}")

    def _until(self, end: str) -> list[Node]:
        nodes: list[Node] = []
        while not self._accept(end):
            nodes.append(self.expression())
            if not self._accept(","):
                self.expect(end)
                break
        return nodes

    def _map(self) -> Node:
        pairs: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            key = self.expression()
            self.expect(":")
            pairs.append((key, self.expression()))
            if not self._accept(","):
                self.expect("}")
                break
        return mapped(pairs)

    def _has(self) -> Node:
        node = self.expression()
        self.expect(")")
        selected, operand, field = self._selection
        if node is not selected:
            raise self._error("has() wants a field: has(self.name)")
        return has(operand, field)

    def _function(self, name: str) -> Node:
        arguments = self._until(")")
        function = FUNCTIONS.get((name, len(arguments)))
        if function is None:
            raise self._error(f"there is no function {name}() with {len(arguments)} arguments here")
        return call(function, *arguments)

    def _method(self, node: Node, name: str) -> Node:
        if name in MACROS:
            return self._macro(node, name)
        arguments = self._until(")")
        method = METHODS.get((name, len(arguments)))
        if method is None:
            raise self._error(f"there is no method .{name}() with {len(arguments)} arguments here")
        return call(method, node, *arguments)

    def _macro(self, node: Node, name: str) -> Node:
        variable = self._name()
        self.expect(",")
        self._bound.append(variable)
        bodies = self._until(")")
        self._bound.pop()
        make = MACROS[name].get(len(bodies))
        if make is None:
            raise self._error(f".{name}() with {len(bodies) + 1} arguments is not supported here")
        return make(node, variable, *bodies)
