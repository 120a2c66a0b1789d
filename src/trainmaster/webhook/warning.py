"""What is legal in a job but surely not meant. Only what is cheap to see in the job itself."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from trainmaster.kinds.admission_hints import Custom

MOST = 8
LONGEST = 256
"""The API server drops what is longer, and counts all of them together."""

_DEPTH = 4
"""How far below the spec a pod template may stand."""


class Template(NamedTuple):
    """A pod template of the job, as its user wrote it."""

    path: str
    role: str
    spec: dict[str, Any]
    metadata: Any

    @property
    def containers(self) -> list[tuple[str, dict[str, Any]]]:
        """Each with its path. Entries that are no objects are left to schema validation."""
        found = self.spec.get("containers")
        entries = enumerate(found if isinstance(found, list) else ())
        return [(f"{self.path}.spec.containers[{i}]", entry) for i, entry in entries if isinstance(entry, dict)]


def warnings_of(job: dict[str, Any], custom: Custom, of_kind: Sequence[str] = ()) -> list[str]:
    """Each as ``path: what is odd and what comes of it``, the first few. Those of the kind itself come first."""
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return []
    found = [*of_kind, *_lonely(spec, custom)]
    for template in _templates("spec", spec, _DEPTH):
        found += [
            *_unnamed(template, custom),
            *_unpublished(template, custom),
            *_endless(template, custom),
            *_colliding(template, custom),
            *_held(template),
        ]
        found += _idle(template, custom)
    return [warning if len(warning) <= LONGEST else f"{warning[: LONGEST - 1]}…" for warning in found[:MOST]]


def _templates(path: str, found: dict[str, Any], depth: int) -> Iterator[Template]:
    """Roles are the values of a map, or the entries of a list."""
    for name, value in found.items():
        if isinstance(value, list) and depth:
            for i, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from _templates(f"{path}.{name}[{i}]", entry, depth - 1)
        elif not isinstance(value, dict):
            continue
        elif name == "template" and isinstance(value.get("spec"), dict):
            yield Template(f"{path}.template", path.rpartition(".")[2], value["spec"], value.get("metadata"))
        elif depth:
            yield from _templates(f"{path}.{name}", value, depth - 1)


def _lonely(spec: dict[str, Any], custom: Custom) -> Iterator[str]:
    present = [role for role in custom.together if spec.get(role)]
    for role in custom.together:
        if present and role not in present:
            yield f"spec.{role}: is missing beside spec.{present[0]}; a {role} that the job asks for has no template"


def _unnamed(template: Template, custom: Custom) -> Iterator[str]:
    main = custom.main
    if (
        main
        and main.otherwise
        and not any(_is_main(container, template, custom) for _, container in template.containers)
    ):
        name = main.pattern_of(template.role)
        yield f"{template.path}.spec.containers: none is called {name}; {main.otherwise}"


def _unpublished(template: Template, custom: Custom) -> Iterator[str]:
    """Warns about ports of side-cars: users may expect that they are published to the peers."""
    main = custom.main
    if main is None or main.otherwise or not any(_is_main(c, template, custom) for _, c in template.containers):
        return
    for path, container in template.containers:
        if container.get("ports") and not _is_main(container, template, custom):
            name = main.pattern_of(template.role)
            yield f"{path}.ports: are not published: another container of the pod is called {name}, and this one is not"


def _endless(template: Template, custom: Custom) -> Iterator[str]:
    if template.role in custom.ending and template.spec.get("restartPolicy") == "Always":
        yield (
            f"{template.path}.spec.restartPolicy: with Always the {template.role} is started again when it has "
            "finished, so the job never ends; use Never or OnFailure"
        )


def _colliding(template: Template, custom: Custom) -> Iterator[str]:
    has_ports = any(container.get("ports") for _, container in template.containers)
    if custom.declares_ports and template.spec.get("hostNetwork") is True and not has_ports:
        yield (
            f"{template.path}.spec.hostNetwork: no container declares a port, so none is set aside; "
            "two pods on one node may want the same"
        )


def _held(template: Template) -> Iterator[str]:
    if isinstance(template.metadata, dict) and template.metadata.get("finalizers"):
        yield (
            f"{template.path}.metadata.finalizers: a pod that is deleted stays until they are removed, "
            "and until then no other takes its place"
        )


def _idle(template: Template, custom: Custom) -> Iterator[str]:
    for path, container in template.containers:
        if not container.get("image"):
            yield f"{path}.image: is missing; the API server will refuse the pod"
        elif _is_main(container, template, custom) and not (container.get("command") or container.get("args")):
            yield f"{path}.command: is missing; the image's own program is run, without arguments"


def _is_main(container: dict[str, Any], template: Template, custom: Custom) -> bool:
    name = str(container.get("name"))
    return custom.main is not None and fnmatchcase(name, custom.main.pattern_of(template.role))
