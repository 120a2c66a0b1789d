"""What the operator makes of a manifest, asked without an operator: the kinds are pure."""

import json
from datetime import UTC, datetime

from tests.manifests.build import Manifest
from trainmaster.core.condition import ACCEPTED
from trainmaster.core.ids import Key
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan
from trainmaster.core.view import JobView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_kinds

_KINDS = {kind.resource.kind: kind for kind in all_kinds(Settings())}


def resource_of(manifest: Manifest) -> str:
    """The resource as the admin client names it."""
    return f"{manifest['apiVersion']}/{_KINDS[manifest['kind']].resource.plural}"


def first_plan(manifest: Manifest) -> Plan:
    """The plan for a job that was just created and owns nothing."""
    kind, meta = _KINDS[manifest["kind"]], manifest["metadata"]
    key = Key(meta.get("namespace", ""), meta["name"])
    view = JobView(key, meta.get("uid", ""), 1, False, json.dumps(manifest).encode())
    return kind.plan(view, Observed.of([], [], kind.slots), datetime.now(UTC))


def complaint(plan: Plan) -> str:
    """What the operator's own check finds wrong; empty when it finds nothing."""
    found = (plan.status or {}).get("conditions", ())
    return next((c["message"] for c in found if c["type"] == ACCEPTED and c["status"] == "False"), "")
