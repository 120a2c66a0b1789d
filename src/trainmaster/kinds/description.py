"""Descriptions for users: a string literal behind a field of a wire type, or behind a constant.

Python drops such literals, so they are read from the source of the module.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

import msgspec

Descriptions = Mapping[str, str]
"""By the name in Python."""


@cache
def fields_of(type_: type[msgspec.Struct]) -> Descriptions:
    """The descriptions of the fields of a struct, including inherited ones."""
    own = [base for base in reversed(type_.__mro__) if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]
    return {name: text for base in own for name, text in _classes(base.__module__).get(base.__qualname__, {}).items()}


def constants_of(module: str) -> Descriptions:
    """The descriptions of the constants of a module."""
    return dict(_described(_source(module).body))


def plain(docstring: str) -> str:
    """In one line, with code in single backticks."""
    return " ".join(docstring.split()).replace("``", "`")


@cache
def _classes(module: str) -> Mapping[str, Descriptions]:
    return {node.name: dict(_described(node.body)) for node in _source(module).body if isinstance(node, ast.ClassDef)}


def _source(module: str) -> ast.Module:
    """Empty where only the compiled module is installed: nothing is described then, and all else works."""
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return ast.Module(body=[], type_ignores=[])


def _described(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(text))),
            ):
                yield name, plain(text)
