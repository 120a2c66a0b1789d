"""``trainmaster explain``: the fields of a kind, in the manner of ``kubectl explain``, without a cluster."""

import difflib
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from trainmaster.client import field
from trainmaster.client.field import Schema
from trainmaster.core.errors import BadConfig

if TYPE_CHECKING:
    from trainmaster.kinds.definition import Definition

_ENTRY = re.compile(r"\[[^\]]*\]")
"""``tasks[0]`` and ``tasks[]`` are the entries of ``tasks``."""
_WIDEST = 100


@click.command()
@click.argument("field_path", metavar="KIND[.FIELD…]")
@click.option("--recursive", is_flag=True, help="Print the names and types of all fields below, without descriptions.")
def explain(field_path: str, recursive: bool) -> None:
    """Describe a kind of job, or one of its fields.

    KIND is as for the other commands, or aggregatorconfig. The entries of maps and lists have no name in the path.

    \b
    Example:
      trainmaster explain aitrainingjob.spec
      trainmaster explain aitj.spec.replicaSpecs.restartPolicy
      trainmaster explain mxjob --recursive
    """
    click.echo("\n".join(explanation(field_path, min(shutil.get_terminal_size().columns, _WIDEST), recursive)))


def explanation(field_path: str, width: int, recursive: bool = False) -> Iterator[str]:
    """The lines for a kind or a field."""
    # Imported here: reading all kinds would delay --help.
    from trainmaster.kinds.crd import crd
    from trainmaster.kinds.description import fields_of

    definition, path = _split(field_path)
    schema = crd(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # In a definition only the API server may describe the metadata.
    schema["properties"]["metadata"] = {
        "description": fields_of(definition.job)["metadata"],
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    for depth, name in enumerate(path):
        schema = _inside(schema, name, definition.resource.kind, path[:depth])

    yield f"GROUP:      {definition.resource.group}"
    yield f"KIND:       {definition.resource.kind}"
    yield f"VERSION:    {', '.join(version.name for version in definition.versions)}"
    yield ""
    if path:
        yield f"FIELD: {path[-1]} <{field.type_of(schema)}>"
        yield ""
    yield "DESCRIPTION:"
    yield from _wrapped(schema["description"], width)
    if path and (values := field.bounds_of(schema)):
        yield f"    Values: {values}."
    if fields := field.fields_of(schema):
        yield ""
        yield "FIELDS:"
        yield from _tree(schema, "  ") if recursive else _described(schema, fields, width)


def _described(schema: Schema, fields: field.Fields, width: int) -> Iterator[str]:
    required = field.content(schema).get("required", ())
    for number, (name, inner) in enumerate(fields.items()):
        if number:
            yield ""
        yield f"  {name}\t<{field.type_of(inner)}>{' -required-' if name in required else ''}"
        yield from _wrapped(inner.get("description", ""), width)
        if values := field.bounds_of(inner):
            yield f"    Values: {values}."


def _tree(schema: Schema, indent: str) -> Iterator[str]:
    for name, inner in field.fields_of(schema).items():
        yield f"{indent}{name}\t<{field.type_of(inner)}>"
        yield from _tree(inner, indent + "  ")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _split(field_path: str) -> "tuple[Definition, Sequence[str]]":
    """The kind, and the path of the field. The name of a kind may have dots: ``mxjob.kubeflow.org``."""
    parts = _ENTRY.sub("", field_path).split(".")
    for end in range(len(parts), 0, -1):
        if (found := _definition(".".join(parts[:end]))) is not None:
            return found, parts[end:]
    from trainmaster.client.kind_name import kind_called

    kind_called(parts[0])  # raises the error that names all kinds
    raise AssertionError


def _definition(name: str) -> "Definition | None":
    from trainmaster.client.kind_name import kinds_called
    from trainmaster.kinds.registry import DEFINITIONS

    if kinds := kinds_called(name):
        return next(each for each in DEFINITIONS if each.resource == kinds[0].resource)
    # An AggregatorConfig is no job.
    return next((each for each in DEFINITIONS if name.lower() in _names(each)), None)


def _names(definition: "Definition") -> tuple[str, ...]:
    resource = definition.resource
    singular = resource.kind.lower()
    return (
        *(singular, resource.plural, definition.short_name),
        *(f"{singular}.{resource.group}", f"{resource.plural}.{resource.group}"),
    )


def _inside(schema: Schema, name: str, kind: str, path: Sequence[str]) -> Schema:
    fields = field.fields_of(schema)
    if name in fields:
        return fields[name]
    here = ".".join((kind, *path))
    if field.content(schema).get("x-kubernetes-preserve-unknown-fields"):
        raise BadConfig(
            f"{here}.{name} is not described here, because trainmaster keeps it as it is; see: kubectl explain pod"
        )
    if not fields:
        raise BadConfig(f"{here} is of type {field.type_of(schema)} and has no fields; remove .{name}")
    meant = _similar(name, fields)
    hint = f"did you mean {meant}?" if meant else "choose one of these."
    raise BadConfig(f"{here} has no field {name}; {hint} It has {', '.join(fields)}")


def _similar(name: str, fields: field.Fields) -> str:
    by_lower = {each.lower(): each for each in fields}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""
