"""Validates a Job, with kube-apiserver's messages; and refuses features that the local cluster does not support."""

from collections.abc import Iterator
from typing import Any

from trainmaster.local.apiserver.controllers.job_default import UID_LABEL, own_labels
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects import pod_error
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.label import key_complaints, value_complaints

Object = dict[str, Any]

_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_RESTARTS = ("OnFailure", "Never")
_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_FIXED = ("completions", "completionMode", "selector", "template")
_OWN_CONTROLLER = "kubernetes.io/job-controller"


def errors(job: Object, old: Object | None) -> list[Cause]:
    """All errors of a defaulted Job and of its update."""
    causes = [*_spec_errors(job), *_unsupported(job["spec"])]
    if old is not None:
        causes += _update_errors(job["spec"], old["spec"])
    return causes


def _spec_errors(job: Object) -> Iterator[Cause]:
    spec = job["spec"]
    for field in _COUNTS:
        if spec.get(field, 0) < 0:
            yield cause.invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    for field, words in (("completionMode", _MODES), ("podReplacementPolicy", _REPLACEMENTS)):
        if spec[field] not in words:
            yield cause.unsupported_value(f"spec.{field}", spec[field], words)
    yield from _selector_errors(job)
    yield from _template_errors(spec["template"])


def _selector_errors(job: Object) -> Iterator[Cause]:
    meta, spec = job["metadata"], job["spec"]
    labels = spec["template"]["metadata"].get("labels", {})
    for label, wanted in sorted(own_labels(meta).items()):
        if labels.get(label) != wanted:
            yield cause.invalid(f"spec.template.metadata.labels[{label}]", labels, f"must be '{wanted}'")
    selector = spec.get("selector", {})
    if selector != {"matchLabels": {UID_LABEL: meta.get("uid", "")}}:
        yield cause.invalid("spec.selector", selector, "`selector` not auto-generated")
        wanted_labels = selector.get("matchLabels", {})
        if any(labels.get(key) != value for key, value in wanted_labels.items()):
            message = "`selector` does not match template `labels`"
            yield cause.invalid("spec.template.metadata.labels", labels, message)


def _template_errors(template: Object) -> Iterator[Cause]:
    meta = template["metadata"]
    for key, value in sorted(meta.get("labels", {}).items()):
        yield from (cause.invalid("spec.template.labels", key, error) for error in key_complaints(key))
        yield from (cause.invalid("spec.template.labels", value, error) for error in value_complaints(value))
    for key in sorted(meta.get("annotations", {})):
        yield from (cause.invalid("spec.template.annotations", key, error) for error in key_complaints(key.lower()))
    for error in pod_error.errors(template):
        yield error._replace(field=f"spec.template.{error.field}")
    policy = template["spec"]["restartPolicy"]
    if policy == "Always":
        valid = ", ".join(cause.quoted(word) for word in _RESTARTS)
        yield cause.required("spec.template.spec.restartPolicy", f"valid values: {valid}")
    elif policy not in _RESTARTS:
        yield cause.unsupported_value("spec.template.spec.restartPolicy", policy, _RESTARTS)


def _unsupported(spec: Object) -> Iterator[Cause]:
    """Features that this Job controller does not have; refused instead of ignored."""
    fields = {
        "completionMode": spec["completionMode"] == "Indexed",
        "manualSelector": spec["manualSelector"],
        "podReplacementPolicy": spec["podReplacementPolicy"] == "Failed",
        "managedBy": spec.get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER,
        "podFailurePolicy": "podFailurePolicy" in spec,
        "successPolicy": "successPolicy" in spec,
        "backoffLimitPerIndex": "backoffLimitPerIndex" in spec,
        "maxFailedIndexes": "maxFailedIndexes" in spec,
    }
    for field, is_set in fields.items():
        if is_set:
            yield cause.forbidden(f"spec.{field}", "not supported by the local cluster: leave it out")


def _update_errors(spec: Object, old: Object) -> Iterator[Cause]:
    for field in _FIXED:
        if spec.get(field) == old.get(field):
            continue
        if field == "template":
            yield cause.invalid_omitted("spec.template", "field is immutable")
        else:
            yield cause.invalid(f"spec.{field}", spec.get(field), "field is immutable")
