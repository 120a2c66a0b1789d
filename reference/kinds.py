"""One page for each kind: its fields, columns, phases, labels, annotations, variables and reasons."""

from collections.abc import Iterator, Sequence

from reference import forms
from reference.forms import Form, forms_of
from reference.markdown import page, section, table, words
from trainmaster.client import field
from trainmaster.client.field import Schema
from trainmaster.kinds.crd import crd
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.registry import DEFINITIONS

_TEMPLATES = ("template", "aggregatorTemplate")
_MORE = {
    "AITrainingJob": "aitrainingjob.md",
    "DIJob": "dijob.md",
    "NerveXJob": "dijob.md",
    "AggregatorConfig": "dijob.md",
    "MXJob": "mxjob.md",
    "MxJob": "mxjob.md",
}


def kind_pages() -> dict[str, str]:
    """By file name. Definitions with the same fields in several groups share a page."""
    by_name: dict[str, list[Definition]] = {}
    for definition in DEFINITIONS:
        by_name.setdefault(_file(definition), []).append(definition)
    return {name: _page(definitions) for name, definitions in by_name.items()}


def _file(definition: Definition) -> str:
    kind = definition.resource.kind
    return "mxjob-mlkube.md" if kind == "MxJob" else f"{kind.lower()}.md"


def _page(definitions: Sequence[Definition]) -> str:
    first = definitions[0]
    kind, found = first.resource.kind, forms_of(first.resource)
    schema = crd(first)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    more = f"[{_MORE[kind]}](../{_MORE[kind]}) explains it. `trainmaster explain {kind.lower()}` prints its fields."
    return page(
        f"# {kind}",
        schema["description"],
        more,
        table(("API", "resource", "short name"), map(_names, _versions(definitions))),
        section("## Fields of spec", _fields(schema["properties"]["spec"], "spec")),
        section("## Fields of status", _status(schema)),
        section("## Fields of a pod template", _template_note(), _fields(_template(schema), "template")),
        section("## Columns of kubectl get", *map(_columns, definitions[:1])),
        *(
            part
            for form in found
            for part in _form(form, level="##" if len(found) == 1 else "###", many=len(found) > 1)
        ),
    )


def _versions(definitions: Sequence[Definition]) -> list[tuple[Definition, str]]:
    return [(definition, version.name) for definition in definitions for version in definition.versions]


def _names(of: tuple[Definition, str]) -> tuple[str, str, str]:
    definition, version = of
    return f"{definition.resource.group}/{version}", definition.resource.plural, definition.short_name or "–"


# --- fields ---


def _status(schema: Schema) -> str:
    found = schema["properties"].get("status")
    return _fields(found, "status") if found else ""


def _fields(schema: Schema, path: str) -> str:
    return table(("field", "type", "description"), _rows(schema, path))


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    required = field.content(schema).get("required", ())
    for name, inner in field.fields_of(schema).items():
        here = f"{path}.{name}"
        bounds = field.bounds_of(inner)
        type_ = ", ".join(filter(None, (field.type_of(inner), "required" if name in required else "")))
        yield f"`{here}`", f"{type_}: {bounds}" if bounds else type_, inner["description"]
        if name not in _TEMPLATES:
            yield from _rows(inner, here + _entry(inner))


def _entry(schema: Schema) -> str:
    """What stands between the path of a list or map and the fields of its entries."""
    if "items" in schema:
        return f"[]{_entry(schema['items'])}"
    return f".<name>{_entry(schema['additionalProperties'])}" if "additionalProperties" in schema else ""


def _template(schema: Schema) -> Schema:
    """The first template of the spec."""
    found: Schema = next(_templates(schema["properties"]["spec"]))
    return found


def _templates(schema: Schema) -> Iterator[Schema]:
    for name, inner in field.fields_of(schema).items():
        if name in _TEMPLATES:
            yield inner
        else:
            yield from _templates(inner)


def _template_note() -> str:
    return (
        "Those that trainmaster reads. All fields of a PodTemplateSpec are accepted and kept; `kubectl explain pod` "
        "describes them."
    )


# --- what is beside the fields ---


def _columns(definition: Definition) -> str:
    rows = [
        (f"{column.name}{' (-o wide)' if column.priority else ''}", f"`{column.json_path}`", version.name)
        for version in definition.versions
        for column in version.columns
    ]
    return table(("column", "field", "version"), rows)


def _form(form: Form, *, level: str, many: bool) -> Iterator[str]:
    if many:
        yield f"## {form.title}"
    yield section(f"{level} Phases", words("phase", form.phases))
    yield section(f"{level} Labels of pods", words("label", {**form.labels, **forms.LABELS}))
    yield section(f"{level} Annotations of pods", words("annotation", {**form.annotations, **forms.ANNOTATIONS}))
    yield section(f"{level} Labels that are read", "Of the job.", words("label", forms.READ_LABELS))
    if form.read_annotations:
        yield section(
            f"{level} Annotations that are read", form.read_annotations_note, words("annotation", form.read_annotations)
        )
    yield section(f"{level} Environment", form.environment_note, words("variable", form.environment))
    for framework, variables in form.frameworks.items():
        yield section(
            f"{level} Environment with frameworkType {framework}",
            "In training containers, unless the template sets the variable ([frameworks.md](../frameworks.md)).",
            words("variable", variables),
        )
    if form.conditions:
        yield section(
            f"{level} Conditions", "Beside [those of all kinds](conditions.md):", words("condition", form.conditions)
        )
    reasons = {**forms.prefixed_reasons(form), **form.reasons}
    yield section(
        f"{level} Reasons",
        "Of conditions and Events, beside [those of all kinds](conditions.md):",
        words("reason", reasons),
    )
