"""CEL: what an expression says, here and in a real kube-apiserver."""

import json
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.local.apiserver.client import Client
from trainmaster.local.apiserver.schema import cel
from trainmaster.local.apiserver.schema.cel import compiled
from trainmaster.local.apiserver.schema.cel_node import Budget, TooExpensive
from trainmaster.local.apiserver.schema.cel_value import CelError
from trainmaster.local.apiserver.schema.schema import Structural

Object = dict[str, Any]

SELF: Object = {
    "name": "Trainer",
    "count": 3,
    "ratio": 1.5,
    "flag": True,
    "words": ["b", "a", "b"],
    "numbers": [3, 1, 2],
    "map": {"x": 1, "y": 2},
    "deep": {"inner": {"leaf": "l"}},
    "a-b": {"c.d": 1, "namespace": 2},
}


def evaluate(source: str, **names: Any) -> Any:
    return compiled(source).evaluate({"self": SELF, **names}, Budget())


EXPRESSIONS: dict[str, Any] = {
    # literals and operators
    "1 + 2 * 3": 7,
    "(1 + 2) * 3": 9,
    "-7 / 2": -3,
    "-7 % 2": -1,
    "7.0 / 2.0": 3.5,
    "0x1F": 31,
    "1e3": 1000.0,
    "1 == 1.0": True,
    "1 == true": False,
    "'1' == 1": False,
    "null == null": True,
    "2 > 1 && 1 >= 1 && 1 < 2 && 1 <= 1 && 1 != 2": True,
    "!true || !false": True,
    "- -1": 1,
    "true ? 'a' : 'b'": "a",
    "false ? 'a' : true ? 'c' : 'd'": "c",
    "'a' + \"b\"": "ab",
    r"'\x41\u0042\n\''": "AB\n'",
    r"r'\d'": "\\d",
    "'''a'b'''": "a'b",
    "[1, 2] + [3]": [1, 2, 3],
    "[1, 2,]": [1, 2],
    "{'a': 1, 'b': [2]}": {"a": 1, "b": [2]},
    "{'a': 1} == {'a': 1.0}": True,
    "[1, 2][1]": 2,
    "1 in [1, 2]": True,
    "'x' in self.map": True,
    "self.name in ['a', 'b']": False,
    "1 // a comment\n + 1": 2,
    # fields
    "self.deep.inner.leaf": "l",
    "self['name']": "Trainer",
    "self.a__dash__b.c__dot__d": 1,
    "self.a__dash__b.__namespace__": 2,
    "has(self.name)": True,
    "has(self.nothing)": False,
    "has(self.deep.inner.leaf)": True,
    "has(self.deep.?inner.leaf)": True,
    # macros
    "self.words.all(w, size(w) == 1)": True,
    "self.words.exists(w, w == 'a')": True,
    "self.words.exists_one(w, w == 'b')": False,
    "self.words.existsOne(w, w == 'a')": True,
    "self.words.filter(w, w != 'b')": ["a"],
    "self.words.map(w, w + w)": ["bb", "aa", "bb"],
    "self.numbers.map(n, n > 1, n * 2)": [6, 4],
    "self.map.all(k, self.map[k] > 0)": True,
    "[[1], [2]].all(l, l.all(n, n > 0))": True,
    "[1, 2].all(self, self > 0)": True,
    # one side decides, whatever the other does
    "1 / 0 == 1 || true": True,
    "true || 1 / 0 == 1": True,
    "1 / 0 == 1 && false": False,
    "[0, 1].exists(n, 1 / n == 1)": True,
    "[0, 1].all(n, 1 / n == 2)": False,
    # functions
    "size('äb') + 'abc'.size() + size([1]) + size({'a': 1})": 7,
    "'abc'.matches('b')": True,
    "matches('abc', '^b')": False,
    "'a\\n'.matches('^a$')": False,
    "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')": True,
    "'Äb'.lowerAscii() + 'Äb'.upperAscii()": "ÄbÄB",
    "' a '.trim()": "a",
    "'abc'.charAt(1) + 'abc'.substring(1) + 'abc'.substring(0, 1)": "bbca",
    "'a,b,c'.split(',')": ["a", "b", "c"],
    "'a,b,c'.split(',', 2)": ["a", "b,c"],
    "['a', 'b'].join('-') + ['a', 'b'].join()": "a-bab",
    "'aa'.replace('a', 'b') + 'aa'.replace('a', 'b', 1)": "bbba",
    "'abca'.indexOf('a') + 'abca'.lastIndexOf('a')": 3,
    "[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)": 2,
    "'a1b22'.find('[0-9]+') + 'a1b22'.findAll('[0-9]+').join()": "1122",
    "self.numbers.max() + self.numbers.min() + self.numbers.sum()": 10,
    "self.numbers.isSorted() || [1, 2].isSorted()": True,
    "string(1) + string(1.5) + string(true) + string('a')": "11.5truea",
    "int('3') + int(2.9)": 5,
    "double('1.5') + double(1)": 2.5,
    "bool('true')": True,
    "type(1) == int && type('a') == string": True,
    "duration('1h30m') > duration('89m')": True,
    "timestamp('2026-11-15T12:00:00Z') + duration('1h') == timestamp('2026-11-15T13:00:00Z')": True,
    # format
    "'%s is %d of %.2f%%'.format(['a', 3, 1.5])": "a is 3 of 1.50%",
    "'%s'.format([['a', 1, [true]]])": '["a", 1, [true]]',
    "'%x %X %o %b'.format([255, 255, 8, 5])": "ff FF 10 101",
    # optionals
    "self.?name.orValue('x')": "Trainer",
    "self.?nothing.orValue('x')": "x",
    "self.?nothing.more.orValue('x')": "x",
    "self.?deep.inner.?leaf.hasValue()": True,
    "self.map[?'x'].orValue(0) + self.map[?'z'].orValue(0)": 1,
    "self.numbers[?0].value() + self.numbers[?9].orValue(1)": 4,
    "optional.none().hasValue()": False,
    "optional.of(1).value()": 1,
    "optional.ofNonZeroValue('').hasValue()": False,
    "optional.none().or(optional.of(2)).value()": 2,
    "self.?count.optMap(c, c + 1).orValue(0)": 4,
    "self.?nothing.optMap(c, c + 1).orValue(0)": 0,
    "self.?deep.optFlatMap(d, d.?inner).hasValue()": True,
}


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_an_expression_has_the_value_that_it_should_have(source: str) -> None:
    found = evaluate(source)

    assert found == EXPRESSIONS[source]
    assert type(found) is type(EXPRESSIONS[source])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        pytest.param("self.nothing", "no such key: nothing", id="key"),
        pytest.param("self.numbers[3]", "index out of bounds: 3", id="index"),
        pytest.param("1 / 0", "division by zero", id="division"),
        pytest.param("1 % 0", "modulus by zero", id="modulus"),
        pytest.param("9223372036854775807 + 1", "integer overflow", id="overflow"),
        pytest.param("1 + 'a'", "no such overload", id="types"),
        pytest.param("1 + 1.0", "no such overload", id="numbers"),
        pytest.param("1 < 'a'", "no such overload", id="order"),
        pytest.param("1 ? 2 : 3", "no such overload", id="choice"),
        pytest.param("!1", "no such overload", id="not"),
        pytest.param("1 && true", "no such overload", id="and"),
        pytest.param("[1, 'a'].max()", "no such overload", id="list"),
        pytest.param("[].max()", "max called on empty list", id="empty"),
        pytest.param("optional.none().value()", "optional.none() dereference", id="optional"),
        pytest.param("int('x')", "type conversion error", id="int"),
        pytest.param("double('x')", "type conversion error", id="double"),
        pytest.param("timestamp('x')", "type conversion error", id="timestamp"),
        pytest.param("duration('x')", "type conversion error", id="duration"),
        pytest.param("'a'.matches('(')", "error parsing regexp", id="regexp"),
        pytest.param("'%d'.format(['a'])", "could not format", id="format"),
        pytest.param("'%d'.format([])", "no arguments left", id="format-without-arguments"),
        pytest.param("1 / 0 == 1 || false", "division by zero", id="or"),
        pytest.param("[0].exists_one(n, 1 / n == 1)", "division by zero", id="exactly-one"),
        pytest.param("has(self.name.more)", "no such overload", id="has"),
    ],
)
def test_what_has_no_value_says_why(source: str, says: str) -> None:
    with pytest.raises(CelError, match=says.replace("(", r"\(").replace(")", r"\)")):
        evaluate(source)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "1 +",
        "(1",
        "[1",
        "{'a' 1}",
        "self.",
        "self.1",
        "other",
        "quantity('1')",
        "isIP('a')",
        "self.words.transformList(i, w, w)",
        "self.words.all(i, w, true)",
        "size()",
        "'a'.size(1)",
        "has(self)",
        "has(1)",
        "1u",
        "for",
        "'\\q'",
        "'a",
        "1 1",
        "a.b(",
        "#",
        "(" * 100 + "1" + ")" * 100,
        "!" * 5000 + "self.?",
    ],
)
def test_what_cannot_be_read_is_refused_before_it_is_evaluated(source: str) -> None:
    with pytest.raises(CelError):
        compiled(source)


def test_rules_that_cannot_be_evaluated_are_named_with_their_place() -> None:
    def rule(source: str) -> Object:
        return {"x-kubernetes-validations": [{"rule": source}]}

    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                **rule("isURL(self)"),
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": "string", **rule("ip(self).family() == 4")},
                },
            }
        },
        "x-kubernetes-validations": [{"rule": "true", "messageExpression": "url('a')"}],
    }

    assert [each.split(": ")[:2] for each in cel.unsupported(schema)] == [
        ["the object", "url('a')"],
        ["spec", "isURL(self)"],
        ["spec[*][]", "ip(self).family() == 4"],
    ]


@pytest.mark.parametrize("source", ["1" + " + 1" * 5000, "!" * 5000 + "true", "false" + " || false" * 5000])
def test_an_endless_row_of_operators_is_refused(source: str) -> None:
    with pytest.raises(CelError, match="too many operators"):
        evaluate(source)


def test_a_budget_ends() -> None:
    with pytest.raises(TooExpensive):
        compiled("[1, 2, 3].all(a, [1, 2, 3].all(b, a + b > 0))").evaluate({}, Budget(10))


def test_long_strings_cost_more() -> None:
    program = compiled("self.contains('a')")

    with pytest.raises(TooExpensive):
        program.evaluate({"self": "x" * 10_000}, Budget(100))
    assert program.evaluate({"self": "x"}, Budget(100)) is False


# --- the same rules in a real API server ---

GROUP = "cel.example.com"
PATH = f"/apis/{GROUP}/v1/namespaces/default/rules"


def _saying(index: int, source: str) -> Object:
    """A rule that never holds, and says what an expression says; no two rules of a schema may be the same."""
    return {"rule": f"self.count == -{index}", "messageExpression": source}


SAID = (
    "'%s'.format([['a', 1, true, 1.5]])",
    "'%s'.format([{'b': 1, 'a': 'x'}])",
    "'%s %s'.format([duration('90s'), timestamp('2026-11-15T12:00:00Z')])",
    "'%.1f %f'.format([1.25, 1.0])",
    "'%s %s %s'.format([self.ratio, self.count, self.flag])",
    "'a,b'.split(',')[0].upperAscii()",
    "self.?count.hasValue() ? 'yes' : 'no'",
    "self.words.filter(w, w.startsWith('a'))[0]",
    "'%d'.format([self.words.map(w, size(w)).sum()])",
    "'%s'.format([self.words.exists_one(w, w == 'ab')])",
    "'%d %d'.format([-7 / 2, -7 % 2])",
    "'' + ' '",
    "'two\\nlines'",
    "string(1 / (self.count - self.count))",
)
BROKEN = (
    "self.words[9] == 'a'",
    "self.count / (self.count - self.count) == 1",
    "self.when > timestamp('2027-01-01T00:00:00Z')",
    "self.span > duration('2h')",
)
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "flag": {"type": "boolean"},
                "words": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}},
                "when": {"type": "string", "format": "date-time"},
                "span": {"type": "string", "format": "duration"},
            },
            "x-kubernetes-validations": [
                *map(_saying, range(len(SAID)), SAID),
                *({"rule": source} for source in BROKEN),
            ],
        }
    },
}
BODY: Object = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "Rule",
    "metadata": {"name": "x"},
    "spec": {
        "count": 3,
        "ratio": 2,
        "flag": True,
        "words": ["ab", "c"],
        "when": "2026-11-15T12:00:00Z",
        "span": "1h",
    },
}


async def test_a_real_api_server_says_the_same(plane: ControlPlane, real: Client) -> None:
    names = {"plural": "rules", "kind": "Rule", "singular": "rule", "listKind": "RuleList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rules.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    plane.apply(json.dumps(definition))

    answer = await real.request("POST", f"{PATH}?dryRun=All", BODY)

    mine = [each.message for each in Structural(SCHEMA).errors(BODY, None)]
    assert mine == [each["message"] for each in answer.body["details"]["causes"]]
