"""kube-apiserver's defaults of a Job."""

from typing import Any

from trainmaster.local.apiserver.objects import pod_default

Object = dict[str, Any]

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
# Both are also written under their legacy names.
_UID_LABELS = (UID_LABEL, "controller-uid")
_NAME_LABELS = (NAME_LABEL, "job-name")

_SPEC: Object = {
    "parallelism": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}


def default(job: Object) -> None:
    """Sets defaults in the spec and its template; existing values are kept."""
    spec = job["spec"]
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)  # not with parallelism alone: the first success then completes the Job
    for key, value in _SPEC.items():
        spec.setdefault(key, value)
    pod_default.default_template(spec["template"]["spec"])


def own_labels(meta: Object) -> dict[str, str]:
    """The labels of the pods of a Job."""
    uid, name = str(meta.get("uid", "")), str(meta.get("name", ""))
    return {**dict.fromkeys(_UID_LABELS, uid), **dict.fromkeys(_NAME_LABELS, name)}


def select_own_pods(job: Object) -> None:
    """Generates the selector, and the template's labels that it matches."""
    spec, meta = job["spec"], job["metadata"]
    template = spec["template"]["metadata"]
    template["labels"] = {**own_labels(meta), **template.get("labels", {})}
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {UID_LABEL: meta.get("uid", ""), **selector.get("matchLabels", {})}


def label_as_template(job: Object) -> None:
    """A Job without labels gets those of its template."""
    if not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(job["spec"]["template"]["metadata"].get("labels", {}))
