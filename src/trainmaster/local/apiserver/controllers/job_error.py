"""What is wrong with a Job, in kube-apiserver's words; and what this small cluster does not do, in ours."""

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
    """All that is wrong with a Job that was defaulted, and with how it was changed."""
    found = [*_spec_errors(job), *_unsupported(job["spec"])]
    if old is not None:
        found += _update_errors(job["spec"], old["spec"])
    return found


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
            says = "`selector` does not match template `labels`"
            yield cause.invalid("spec.template.metadata.labels", labels, says)


def _template_errors(template: Object) -> Iterator[Cause]:
    meta = template["metadata"]
    for key, value in sorted(meta.get("labels", {}).items()):
        yield from (cause.invalid("spec.template.labels", key, each) for each in key_complaints(key))
        yield from (cause.invalid("spec.template.labels", value, each) for each in value_complaints(value))
    for key in sorted(meta.get("annotations", {})):
        yield from (cause.invalid("spec.template.annotations", key, each) for each in key_complaints(key.lower()))
    for each in pod_error.errors(template):
        yield each._replace(field=f"spec.template.{each.field}")
    policy = template["spec"]["restartPolicy"]
    if policy == "Always":
        valid = ", ".join(cause.quoted(word) for word in _RESTARTS)
        yield cause.required("spec.template.spec.restartPolicy", f"valid values: {valid}")
    elif policy not in _RESTARTS:
        yield cause.unsupported_value("spec.template.spec.restartPolicy", policy, _RESTARTS)


def _unsupported(spec: Object) -> Iterator[Cause]:
    """What would need more of a Job controller than there is here; better said than left undone."""
    given = {
        "completionMode": spec["completionMode"] == "Indexed",
        "manualSelector": spec["manualSelector"],
        "podReplacementPolicy": spec["podReplacementPolicy"] == "Failed",
        "managedBy": spec.get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER,
        "podFailurePolicy": "podFailurePolicy" in spec,
        "successPolicy": "successPolicy" in spec,
        "backoffLimitPerIndex": "backoffLimitPerIndex" in spec,
        "maxFailedIndexes": "maxFailedIndexes" in spec,
    }
    for field, is_given in given.items():
        if is_given:
            yield cause.forbidden(f"spec.{field}", "not supported by the local cluster: leave it out")


def _update_errors(spec: Object, old: Object) -> Iterator[Cause]:
    for field in _FIXED:
        if spec.get(field) == old.get(field):
            continue
        if field == "template":
            yield cause.invalid_omitted("spec.template", "field is immutable")
        else:
            yield cause.invalid(f"spec.{field}", spec.get(field), "field is immutable")
