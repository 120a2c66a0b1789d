"""Objects of any shape: each is stored or refused, and what was stored can be shown; nothing ends in a traceback."""

import copy
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build import NOW
from tests.local.apiserver.test_builtin import GOOD, SERVED
from tests.local.apiserver.test_schema import TOY, a_toy
from tests.manifests import good
from trainmaster.kinds import crd
from trainmaster.local.apiserver.kubectl.table import as_table
from trainmaster.local.apiserver.objects import builtin, metadata, strategic
from trainmaster.local.apiserver.objects import builtin_types as shape
from trainmaster.local.apiserver.objects.catalog import served_of
from trainmaster.local.apiserver.schema.schema import Structural

Object = dict[str, Any]

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    1e300,
    "",
    "x",
    "ä\n",
    [],
    [None],
    [{}],
    ["x"],
    {},
    {"x": None},
    {"name": 1},
    [[{}]],
)
KEPT = ("metadata", "kind", "apiVersion")
QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an object."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in steps for found in places(each, (*path, key)))]


def spoiled(body: Object, path: tuple[Any, ...], junk: Any) -> Object:
    found = copy.deepcopy(body)
    if not path:
        return found
    target: Any = found
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = copy.deepcopy(junk)
    return found


@st.composite
def odd(draw: st.DrawFn, bodies: list[Any]) -> Any:
    """A good object with junk in one or two places."""
    chosen = draw(st.sampled_from(bodies))
    resource, body = chosen if isinstance(chosen, tuple) else ("", chosen)
    for _ in range(draw(st.integers(1, 2))):
        candidates = [path for path in places(body) if path and path[0] not in KEPT]
        if candidates:
            body = spoiled(body, draw(st.sampled_from(candidates)), draw(st.sampled_from(JUNK)))
    return (resource, body) if resource else body


STATUS = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "c",
            "state": {"running": {"startedAt": "2026-11-15T12:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1}},
        }
    ],
    "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "x"}}}],
    "podIPs": [{"ip": "127.0.0.1"}],
}
BODIES = [
    *GOOD.values(),
    *((resource, {**body, "status": STATUS}) for resource, body in GOOD.values() if resource == "pods"),
]


@QUICK
@given(row=odd(BODIES))
def test_a_built_in_object_of_any_shape_is_stored_or_refused(row: tuple[str, Object]) -> None:
    resource, body = row
    served = SERVED[resource]
    status = body.get("status")
    try:
        shape.read(served.resource.kind, body)
        body["metadata"] = metadata.normal(body.get("metadata"))
    except (shape.WrongType, ValueError):
        return
    builtin.default(served, body)
    if builtin.refusal(served, body):
        return
    builtin.prepare(served, body, None, "")
    if not builtin.errors(served, body, None):
        # A status is written without much ado, so it may hold anything that has the right types.
        old = copy.deepcopy(body)
        if status is not None:
            body["status"] = status
            builtin.prepare(served, body, old, "status")
            builtin.errors(served, body, old)
        json.loads(
            msgspec.json.encode(as_table(served, [body], is_list=True, include_object="Object", metadata={}, now=NOW))
        )


DEFINED = {each.resource.kind: each for definition in (*crd.all_crds(), TOY) for each in served_of(definition)}
STRUCTURALS = {kind: Structural((each.definition or {})["schema"]["openAPIV3Schema"]) for kind, each in DEFINED.items()}

JOB_STATUS = {
    "phase": "Running",
    "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": "2026-11-15T12:00:00Z"}],
    "startTime": "2026-11-15T12:00:00Z",
}


@QUICK
@given(body=odd([*good.JOBS, *({**job, "status": JOB_STATUS} for job in good.JOBS)]))
def test_a_job_of_any_shape_is_stored_or_refused(body: Object) -> None:
    structural = STRUCTURALS[body["kind"]]
    old = copy.deepcopy(body)
    structural.prune(body)
    structural.default(body)

    structural.errors(body, None)
    structural.errors(body, old)
    as_table(DEFINED[body["kind"]], [body], is_list=True, include_object="None", metadata={}, now=NOW)


@QUICK
@given(body=odd([a_toy(free={"known": 1, "x": {}}, keyed=[{"name": "a"}], nested={})]))
def test_a_toy_of_any_shape_is_stored_or_refused(body: Object) -> None:
    toy = STRUCTURALS["Toy"]
    toy.prune(body)
    toy.default(body)

    toy.errors(body, None)
    toy.errors(body, a_toy())


PATCHES: list[Object] = [
    {
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}],
            "$setElementOrder/containers": [{"name": "c"}],
        }
    },
    {"metadata": {"labels": {"$patch": "replace"}}, "spec": {"volumes": [{"name": "v", "$retainKeys": ["name"]}]}},
    {"spec": {"$deleteFromPrimitiveList/finalizers": ["x"], "tolerations": [{"key": "a"}]}},
]


@QUICK
@given(patch=odd(PATCHES), row=st.sampled_from([body for resource, body in GOOD.values() if resource == "pods"]))
def test_a_patch_of_any_shape_is_applied_or_refused(patch: Object, row: Object) -> None:
    try:
        strategic.merge(row, patch, "Pod")
    except strategic.BadPatch:
        return
