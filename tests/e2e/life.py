"""What uses every right of an installation: lives of jobs of its kinds, and clients of di-server.

The jobs are those of tests/integration/test_permission.py. There a proxy stands between an operator and the API server;
here the audit log says what was asked for, by every program as it is installed.
"""

import copy
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from deploy.manager import SERVER_PORT, Variant
from testbed.cluster.cluster import Cluster, ClusterFailed
from tests.build import Json
from tests.e2e.audit import Audit
from tests.e2e.kinds import IMAGE, LASTS, pod_specs
from tests.e2e.rights import needed
from tests.integration.crew import roles
from tests.integration.test_permission import ALL, LIVES, MANY, Life
from tests.manifests.build import (
    agconfig,
    aitrainingjob,
    dijob,
    ditask,
    mlkubejob,
    mx_replica,
    mxjob,
    nervexjob,
    replica,
    task,
    template,
)
from trainmaster.core.template import MANAGED_BY

ENDS, ENDS_LATER, FAILS = ("sleep", "1"), ("sleep", "15"), ("false",)
DEADLINE = 40
"""Seconds until a large job ends. None of its pods runs: no node has the label that they ask for."""
TIMEOUT = 240.0
CLIENT = "rights-client"
KINDS = {"pods": "Pod", "services": "Service", "configmaps": "ConfigMap", "batch/v1/jobs": "Job"}
REPLICAS = "/v1alpha1/replicas"
[MANAGED] = MANAGED_BY

Step = Callable[[], bool]
"""Done once, as soon as it can be done; answers whether it was."""


def use_all_rights(cluster: Cluster, variants: Iterable[Variant], audit: Audit) -> None:
    """Return when each right of these installations was used."""
    variants = list(variants)
    rights = [right for variant in variants for right in needed(variant)]
    names = {each.name for variant in variants for each in variant.kinds}
    lives = [life for life in LIVES if life.kind in names]
    _apply(cluster, _client(variants))
    for life in lives:
        _apply(cluster, _bodies(life), _place(life))
    steps = [step for life in lives for step in _steps(cluster, life)]
    for variant in variants:
        served = {each.name for each in variant.kinds} & {"dijob", "nervexjob"}
        steps += [_asks(cluster, variant, kind) for kind in served]

    def are_used() -> bool:
        steps[:] = [step for step in steps if not step()]
        audit.look()
        return not audit.unused(rights)

    try:
        cluster.wait("every right is used", are_used, TIMEOUT)
    except ClusterFailed as error:
        raise ClusterFailed("\n".join([f"{error}; unused are", *map(str, audit.unused(rights))])) from error
    finally:
        places = [_place(life) for life in lives]
        cluster.kubectl("delete", "namespace", CLIENT, *places, "--wait=false")
    cluster.wait("their namespaces are gone", lambda: not _objects(cluster, "namespaces", starting="rights-"), 120)


# --- what is created --------------------------------------------------------------------------


def _client(variants: Iterable[Variant]) -> Iterator[Json]:
    """Somebody who may do everything, and asks the di-server of each of them for a learner of several GPUs."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLIENT}}
    for variant in variants:
        if "dijob" in {each.name for each in variant.kinds}:
            yield _run({**agconfig(variant.namespace), "apiVersion": "diengine.opendilab.org/v1alpha1"})
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CLIENT, "namespace": CLIENT}}
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": CLIENT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": CLIENT, "namespace": CLIENT}],
    }


def _bodies(life: Life) -> Iterator[Json]:
    """Jobs of a kind to which all happens that an operator has rights for."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _place(life)}}
    for resource, foreign, job in life.taken:
        version = "batch/v1" if resource.startswith("batch/") else "v1"
        yield _run({"apiVersion": version, "kind": KINDS[resource], **foreign})
        yield _run(job)
    yield _run(life.make("cleaned", **life.clean), ENDS)
    yield _run(life.make("kept", **life.ttl), ENDS)
    yield _run(life.make("left"))
    yield _run(life.make("failing"), FAILS)
    yield from _special(life.kind)


def _special(kind: str) -> Iterator[Json]:
    """What only some kinds can do: large jobs with a ConfigMap, replicas on request, members, batch Jobs."""
    elsewhere: dict[str, Any] = {"nodeSelector": {"no": "such-node"}}
    match kind:
        case "dijob":
            policy = {"runPolicy": {"activeDeadlineSeconds": DEADLINE}}
            yield _run(ditask("large", task("collector", replicas=MANY), **ALL, **policy), **elsewhere)
            yield _run(dijob("asked", collector={"template": template()}, learner={"template": template()}))
            yield _run(ditask("tasks"))
        case "nervexjob":
            yield _run(nervexjob("asked", **roles("collector", "learner")))
        case "mxjob":
            policy = {"runPolicy": {**ALL, "activeDeadlineSeconds": DEADLINE}}
            yield _run(mxjob("large", mxReplicaSpecs={"Worker": mx_replica(replicas=MANY)}, **policy), **elsewhere)
        case "aitrainingjob":
            members = {"trainer": replica(edlPolicy="Manual")}
            yield _run(aitrainingjob("elastic", replicaSpecs=members), ENDS_LATER)
        case _:
            group = kind.removeprefix("mxjob.")
            yield _run(mlkubejob("stopped", group=group), FAILS)
            # Its pod is refused; why is read from an Event of its batch Job.
            yield _run(mlkubejob("refused", group=group), serviceAccountName="missing")
            yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _lost(kind)}}
            yield _run(mlkubejob("lost", group=group), nodeName=_lost(kind))


def _run(body: Json, command: tuple[str, ...] = LASTS, **spec: Any) -> Json:
    """The same with programs that are on this cluster."""
    body = copy.deepcopy(body)
    for pod in pod_specs(body):
        pod |= {"terminationGracePeriodSeconds": 1, **spec}
        for each in pod["containers"]:
            each |= {"image": IMAGE, "imagePullPolicy": "Never", "command": list(command)}
    return body


def _place(life: Life) -> str:
    return f"rights-{life.kind.replace('.', '-')}"


def _lost(kind: str) -> str:
    return f"lost-{kind.replace('.', '-')}"


# --- what is done with it ---------------------------------------------------------------------


def _steps(cluster: Cluster, life: Life) -> Iterator[Step]:
    place = _place(life)
    for resource in life.owned:
        yield _loses_its_label(cluster, place, resource.rpartition("/")[2], "left-")
    if life.kind in ("dijob", "mxjob"):
        yield _loses_its_label(cluster, place, "configmaps", "large-")
    if "mlkube" in life.kind:
        yield _hangs_on_a_lost_node(cluster, place, _lost(life.kind))


def _loses_its_label(cluster: Cluster, place: str, resource: str, starting: str) -> Step:
    """As if another operator had created it."""

    def step() -> bool:
        names = _objects(cluster, resource, place, starting)
        if names:
            cluster.kubectl("label", resource, min(names), f"{MANAGED}-", f"--namespace={place}")
        return bool(names)

    return step


def _hangs_on_a_lost_node(cluster: Cluster, place: str, node: str) -> Step:
    """A pod that does not end: it has to be deleted by force."""

    def step() -> bool:
        names = _objects(cluster, "pods", place, "lost-")
        if names:
            cluster.kubectl("delete", "pod", min(names), f"--namespace={place}", "--wait=false", "--grace-period=30")
            cluster.kubectl("delete", "node", node)
        return bool(names)

    return step


def _asks(cluster: Cluster, variant: Variant, kind: str) -> Step:
    """A client of di-server, with a token, and with the code of each answer."""
    place = f"rights-{kind}"
    asked = {"namespace": place, "coordinator": "asked-coordinator"}
    requests: list[tuple[int, str, str, Json | None]] = [
        (404, "GET", f"{REPLICAS}?namespace={place}&coordinator=nobody-coordinator", None),
        (200, "POST", REPLICAS, {**asked, "collectors": {"replicas": 1}, "learners": {"replicas": 1, "gpus": 2}}),
    ]
    if kind == "dijob":
        tasks = f"/v2alpha1/job/{place}.tasks/replicas"
        requests += [(200, verb, tasks, {"replicas": 1}) for verb in ("POST", "DELETE", "POST")]

    def step() -> bool:
        [address, *_] = _addresses(cluster, variant)
        token = cluster.kubectl("create", "token", CLIENT, f"--namespace={CLIENT}").strip()
        while requests:
            expected, method, path, body = requests[0]
            if _request(method, f"http://{address}:{SERVER_PORT}{path}", token, body) != expected:
                return False
            requests.pop(0)
        return True

    return step


def _addresses(cluster: Cluster, variant: Variant) -> list[str]:
    """Of the pods of di-server."""
    query = f"labelSelector=app.kubernetes.io/name%3D{variant.name('server')}"
    pods = cluster.control.get(f"/api/v1/namespaces/{variant.namespace}/pods?{query}")["items"]
    return [pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"]]


def _request(method: str, url: str, token: str, body: Json | None) -> int:
    """The code of the answer; 0 without one."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _objects(cluster: Cluster, resource: str, place: str = "", starting: str = "") -> list[str]:
    """Names of objects."""
    found = cluster.kubectl("get", resource, "--output=name", *([f"--namespace={place}"] if place else []))
    names = [line.rpartition("/")[2] for line in found.splitlines()]
    return [name for name in names if name.startswith(starting)]


def _apply(cluster: Cluster, bodies: Iterable[Json], place: str = "") -> None:
    lines = "\n".join(map(json.dumps, bodies))
    where = [f"--namespace={place}"] if place else []
    cluster.kubectl("apply", "--server-side", "--filename=-", *where, stdin=lines)
