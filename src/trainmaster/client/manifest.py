"""Reads manifests: several files with several documents each. Errors name the file and the document."""

import copy
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from trainmaster.client import field
from trainmaster.core.errors import ApiError, BadConfig
from trainmaster.core.ids import NAMESPACE, POD, SERVICE, Key, Resource
from trainmaster.kinds.crd import all_crds
from trainmaster.kinds.registry import DEFINITIONS, KINDS
from trainmaster.local.apiserver.objects import builtin_types

STDIN = "-"
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = Resource("", "v1", "secrets", "Secret")

_STORED = {kind.resource for kind in KINDS}
_DEFINED = tuple(resource for definition in DEFINITIONS for resource in definition.resources)
_JOBS = tuple(r for definition in DEFINITIONS if definition.resource in _STORED for r in definition.resources)
# In the order of creation: objects before those that refer to them.
_KNOWN = (NAMESPACE, CONFIG_MAP, SECRET, SERVICE, POD, *(r for r in _DEFINED if r not in _JOBS), *_JOBS)

_NOUNS = {
    "string": "text",
    "bool": "true or false",
    "int32": "a whole number",
    "int64": "a whole number",
    "intstr.IntOrString": "a whole number or text",
}
"""What to write for a type of Go; other types are lists and objects."""

_UNCHECKED = re.compile(r", <nil>: Invalid value: null: some validation rules were not checked [^\]]*")
"""What an API server adds to the errors of an object that its rules were not applied to."""

MOST_REPEATED = 100_000
"""Values of one document that are there only by aliases: some hundred bytes can stand for billions of values."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document(msgspec.Struct, frozen=True):
    """One object of a manifest, and its place."""

    where: str
    resource: Resource
    body: dict[str, Any]
    derived_name: str = ""
    """The name that a program gave it: unless another was given, the job gets a free one that begins with it."""
    renaming: str = "give this one another name"
    """How its author gives it another name."""

    @property
    def is_job(self) -> bool:
        return self.resource in _JOBS

    @property
    def key(self) -> Key:
        meta = self.body["metadata"]
        return Key(meta.get("namespace") or "", meta["name"])

    @property
    def may_be_renamed(self) -> bool:
        return self.key.name == self.derived_name

    def named(self, name: str) -> "Document":
        return msgspec.structs.replace(self, body={**self.body, "metadata": {**self.body["metadata"], "name": name}})

    def __str__(self) -> str:
        return f"{self.resource.kind.lower()}/{self.key.name}"


def read(files: Sequence[str]) -> list[Document]:
    """All documents of all files, in the order of creation."""
    documents = [document for file in files for document in parse(_text(file), _name(file))]
    if not any(document.is_job for document in documents):
        names = ", ".join(_name(file) for file in files)
        raise BadConfig(f"{names}: contains no job; a job is one of {_choices(_JOBS)}")
    return sorted(documents, key=lambda document: _KNOWN.index(document.resource))


def parse(text: str, name: str) -> Iterator[Document]:
    """The documents of one file. Empty documents are counted and skipped."""
    for number, body in enumerate(_bodies(text, name), 1):
        if body is not None:
            yield from _documents(body, f"{name}, document {number}")


def _documents(body: Any, where: str) -> Iterator[Document]:
    """One object, or the items of a List, as `kubectl get --output=yaml` writes it."""
    if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != ("v1", "List"):
        yield document_of(body, where)
        return
    items = body.get("items")
    if not isinstance(items, list):
        raise BadConfig(f"{where}: this List has no items; write what is in it, or the objects themselves")
    for number, item in enumerate(items, 1):
        yield document_of(item, f"{where}, item {number}")


def to_yaml(documents: Sequence[Document]) -> str:
    bodies = [document.body for document in documents]
    return yaml.safe_dump_all(bodies, sort_keys=False, allow_unicode=True, width=120)


def placed(documents: Sequence[Document], namespace: str, default: str = "default") -> list[Document]:
    """Sets the namespaces: the object's own, else the option's, else ``default``. Duplicates are an error."""
    placed_documents: dict[tuple[Resource, Key], Document] = {}
    for original in documents:
        document = original if original.resource == NAMESPACE else _placed(original, namespace, default)
        first = placed_documents.setdefault((document.resource, document.key), document)
        if first is not document:
            raise BadConfig(f"{document.where}: {document} is also in {first.where}; rename or remove one of them")
    return list(placed_documents.values())


def check_fields(documents: Sequence[Document]) -> None:
    """Rejects unknown fields, which would be dropped silently, and fields of templates with a wrong type."""
    for document in documents:
        if names := _unknown_fields(document):
            known = "remove it or correct its spelling" if len(names) == 1 else "remove them or correct their spelling"
            raise BadConfig(f"{document.where}: {document} has no field {', '.join(names)}; {known}")


def _unknown_fields(document: Document) -> list[str]:
    schema = _schemas().get(document.resource)
    if schema is None:
        return _unknown_in(document, document.resource.kind, document.body)
    names = [_with_meant(path, known) for path, known in field.unknown(schema, document.body)]
    for path, template in _templates(document.body.get("spec"), "spec"):
        names += [f"{path}.{name}" for name in _unknown_in(document, "Pod", template, path)]
    return names


def _with_meant(path: str, known: Iterable[str]) -> str:
    question = meant(path.rpartition(".")[2], known)
    return f"{path} ({question})" if question else path


def _unknown_in(document: Document, kind: str, body: dict[str, Any], path: str = "") -> list[str]:
    """Checks against the fields of a built-in kind: CRDs preserve unknown fields of templates."""
    try:
        return builtin_types.read(kind, copy.deepcopy(body))
    except builtin_types.WrongType as error:
        raise BadConfig(f"{document.where}: {document}, {_type_error(error, path)}") from error


def _type_error(error: builtin_types.WrongType, path: str) -> str:
    if not error.path:
        return f"{path}: {error}; give it another value" if path else f"{error}; give it another value"
    place = f"{path}.{error.path}" if path else error.path
    if error.wanted == "string" and not isinstance(error.value, dict | list):
        return f'{place} must be text; write it in quotes: "{msgspec.json.encode(error.value).decode()}"'
    if error.wanted == "[]string" and isinstance(error.value, str):
        return f"{place} must be a list; write [{', '.join(error.value.split())}]"
    noun = _NOUNS.get(error.wanted, "a list" if error.wanted.startswith("[]") else "an object")
    return f"{place} must be {noun}; it is {msgspec.json.encode(error.value).decode()[:80]}"


def refusal(document: Document, error: ApiError) -> str:
    """Why the API server refuses a document."""
    return f"{document.where}: {_UNCHECKED.sub('', str(error))}"


def _templates(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod templates of a job, with their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "template" and isinstance(inner, dict):
                yield f"{path}.{name}", inner
            else:
                yield from _templates(inner, f"{path}.{name}")


def schema_of(resource: Resource) -> dict[str, Any]:
    return _schemas()[resource]


@cache
def _schemas() -> dict[Resource, dict[str, Any]]:
    by_name = {crd["metadata"]["name"]: crd["spec"]["versions"] for crd in all_crds()}
    return {
        resource: version["schema"]["openAPIV3Schema"]
        for resource in _DEFINED
        for version in by_name[str(resource)]
        if version["name"] == resource.version
    }


def _name(file: str) -> str:
    return "stdin" if file == STDIN else file


def _text(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode()
    except OSError as error:
        raise BadConfig(f"{_name(file)}: cannot be read: {_why_unread(file, error)}") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{_name(file)}: is not UTF-8 text: byte {error.start} is wrong") from error


def _why_unread(file: str, error: OSError) -> str:
    if file.startswith(("http://", "https://")):
        return f"it is a URL; type: curl --silent --show-error --fail {file} | trainmaster run -"
    if isinstance(error, IsADirectoryError):
        return f"it is a folder; name its files: {Path(file) / '*.yaml'}"
    return f"{error.strerror}; check the path"


def _bodies(text: str, name: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _check_aliases(node, name)
            if twice := next(_repeated(node), None):
                line = twice.start_mark.line + 1
                raise BadConfig(f"{name}, line {line}: duplicate key {twice.value!r}; remove one of them")
            yield loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}" if mark else ""
        raise BadConfig(f"{name}{place}: is not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML does not know, a date like 2026-13-32
        raise BadConfig(f"{name}: is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise BadConfig(f"{name}: is nested too deeply, or refers to itself; write it without anchors") from None
    finally:
        loader.dispose()


def _check_aliases(node: Any, name: str) -> None:
    sizes: dict[int, int] = {}
    if _size(node, sizes) - len(sizes) > MOST_REPEATED:
        raise BadConfig(
            f"{name}: its aliases (*name) repeat more than {MOST_REPEATED:,} values; "
            "write these values out, or use fewer aliases"
        )


def _size(node: Any, sizes: dict[int, int]) -> int:
    """The number of values of a node and below it. An alias is the same node again, and is looked at once."""
    if id(node) not in sizes:
        is_mapping, is_list = isinstance(node, yaml.MappingNode), isinstance(node, yaml.SequenceNode)
        inner = [each for pair in node.value for each in pair] if is_mapping else node.value if is_list else ()
        sizes[id(node)] = 1 + sum([_size(each, sizes) for each in inner])
    return sizes[id(node)]


def _repeated(node: Any) -> Iterator[Any]:
    """Duplicate keys of a mapping: YAML would silently use the last value."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.value != "<<":
                    yield key
                seen.add(key.value)
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)


def document_of(body: Any, where: str) -> Document:
    """Raises BadConfig if the body is not an object of a known kind."""
    if not isinstance(body, dict):
        raise BadConfig(f"{where}: is {_noun(body)}, not an object; it must have apiVersion, kind and metadata")
    for name in ("apiVersion", "kind"):
        if not isinstance(body.get(name), str):
            raise BadConfig(f"{where}: has no {name}; each document is an object with apiVersion, kind and metadata")
    resource = _resource(body["apiVersion"], body["kind"], where)
    meta = body.get("metadata")
    given = meta.get("name") if isinstance(meta, dict) else None
    if not given:
        raise BadConfig(f"{where}: this {resource.kind} has no metadata.name; give it one")
    if not isinstance(given, str):
        raise BadConfig(f'{where}: metadata.name is not text for YAML; write it in quotes: name: "{given}"')
    try:
        # Through JSON, as it is sent: keys become strings, dates become text.
        body = msgspec.json.decode(msgspec.json.encode(body))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadConfig(f"{where}: cannot be written as JSON: {error}") from error
    return Document(where, resource, body)


def _resource(api_version: str, kind: str, where: str) -> Resource:
    for resource in _KNOWN:
        if (resource.api_version, resource.kind) == (api_version, kind):
            return resource
    for resource in _KNOWN:
        if resource.kind == kind:
            raise BadConfig(f"{where}: {kind} is served as {resource.api_version}, not as {api_version}")
    kinds = meant(kind, {resource.kind for resource in _KNOWN}) or f"supported are {_choices(_KNOWN)}"
    raise BadConfig(f"{where}: kind {kind} ({api_version}) is not supported; {kinds}")


def meant(word: str, known: Iterable[str]) -> str:
    """A question that names the most similar word; empty if none is similar."""
    similar = {each.lower(): each for each in sorted(known)}
    found = difflib.get_close_matches(word.lower(), similar, n=1, cutoff=0.75)
    return f"did you mean {similar[found[0]]}?" if found else ""


def _choices(resources: Sequence[Resource]) -> str:
    return ", ".join(f"{r.kind} ({r.api_version})" if r.group else r.kind for r in resources)


def _noun(body: Any) -> str:
    return "a list" if isinstance(body, list) else "plain text" if isinstance(body, str) else "a single value"


def _placed(document: Document, namespace: str, default: str) -> Document:
    own = document.key.namespace
    if own and namespace and own != namespace:
        raise BadConfig(
            f"{document.where}: {document} has namespace {own}, but --namespace is {namespace}; remove one of them"
        )
    meta = {**document.body["metadata"], "namespace": own or namespace or default}
    return msgspec.structs.replace(document, body={**document.body, "metadata": meta})
