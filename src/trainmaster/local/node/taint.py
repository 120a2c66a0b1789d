"""The taint of a process node: only pods that say so run on it."""

from trainmaster.local.node.pod import Object, Pod

KEY, EFFECT = "trainmaster.dev/process-node", "NoSchedule"
TAINT: Object = {"key": KEY, "effect": EFFECT}


def taints_with(taints: list[Object], *, is_tainted: bool) -> list[Object]:
    """These taints of a node, with ours or without it."""
    others = [taint for taint in taints if taint.get("key") != KEY]
    return [*others, TAINT] if is_tainted else others


def is_tolerated(pod: Pod) -> bool:
    """A toleration of everything, as DaemonSets have it, does not count: it was not written for this taint."""
    return any(_fits(toleration) for toleration in pod.spec.get("tolerations") or ())


def _fits(toleration: Object) -> bool:
    has_value = toleration.get("operator", "Equal") == "Exists" or not toleration.get("value")
    return toleration.get("key") == KEY and toleration.get("effect", "") in ("", EFFECT) and has_value
