"""Tables for kubectl: built-in columns for the built-in kinds, printer columns for custom resources."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from trainmaster.local.apiserver.kubectl.pod_row import pod_row
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.schema import json_path

Object = dict[str, Any]
Cells = list[Any]

UNKNOWN = "<unknown>"
NONE = "<none>"


class Column(NamedTuple):
    """Columns with priority 1 or more are shown only with ``-o wide``."""

    name: str
    priority: int = 0
    type: str = "string"
    format: str = ""
    description: str = ""


class Layout(NamedTuple):
    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]


def as_table(
    served: Served,
    objects: Sequence[Object],
    *,
    is_list: bool,
    include_object: str,
    metadata: Object,
    now: datetime,
) -> Object:
    """Objects as a meta.k8s.io/v1 Table; ``metadata`` is that of the list, or a single object's resourceVersion."""
    layout = _LAYOUTS.get(str(served.resource)) or _custom(served)
    meta = metadata if is_list else {key: metadata[key] for key in ("resourceVersion",) if key in metadata}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [column._asdict() for column in layout.columns],
        "rows": [_row(layout, served, each, include_object, now) for each in objects],
    }


def _row(layout: Layout, served: Served, obj: Object, include_object: str, now: datetime) -> Object:
    row: Object = {"cells": layout.cells(obj, now)}
    phase = obj.get("status", {}).get("phase") if served.resource.plural == "pods" else None
    if phase in _COMPLETED:
        row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]}]
    if include_object != "None":
        row["object"] = obj if include_object == "Object" else _only_metadata(obj)
    return row


_COMPLETED = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def _only_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


# -- ages ------------------------------------------------------------------------------------------------------


def moment(text: Any) -> datetime | None:
    """A time on the wire, or None for anything else."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def since(text: Any, now: datetime) -> str:
    """The age of a time, with at most two units."""
    then = moment(text)
    return UNKNOWN if then is None else human((now - then).total_seconds())


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 86_400 * 365

# Up to this many seconds: the unit, and the smaller unit beside it.
_SCALE: tuple[tuple[int, int, int], ...] = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (48 * _HOUR, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_LETTERS = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def human(seconds: float) -> str:
    """A duration with two to three significant figures."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    unit, rest = next(((unit, rest) for limit, unit, rest in _SCALE if whole < limit), (_YEAR, 0))
    text = f"{whole // unit}{_LETTERS[unit]}"
    small = whole % unit // rest if rest else 0
    return f"{text}{small}{_LETTERS[rest]}" if small else text


def _age(obj: Object, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


# -- custom resources ------------------------------------------------------------------------------------------

_NAME = Column("Name", format="name")
_AGE = Column("Age")
_DEFAULT_COLUMNS: list[Object] = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]


def _custom(served: Served) -> Layout:
    definitions = (served.definition or {}).get("additionalPrinterColumns") or _DEFAULT_COLUMNS
    columns = tuple(_custom_column(each) for each in definitions)

    def cells(obj: Object, now: datetime) -> Cells:
        return [obj["metadata"].get("name", ""), *(_custom_cell(each, obj, now) for each in definitions)]

    return Layout((_NAME, *columns), cells)


def _custom_column(definition: Object) -> Column:
    fallback = f"Custom resource definition column (in JSONPath format): {definition['jsonPath']}"
    return Column(
        definition["name"],
        definition.get("priority", 0),
        definition["type"],
        definition.get("format", ""),
        definition.get("description") or fallback,
    )


def _custom_cell(definition: Object, obj: Object, now: datetime) -> Any:
    try:
        values = json_path.find(definition["jsonPath"], obj)
    except json_path.BadPath:
        return None
    return _typed(definition["type"], values[0], now) if values else None


def _typed(type_: str, value: Any, now: datetime) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case "string":
            return json_path.shown(value)
        case "integer" if is_number:
            return int(value)
        case "number" if is_number:
            return float(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return since(value, now) if moment(value) else "<invalid>"
    return None


# -- built-in kinds --------------------------------------------------------------------------------------------


def _pod(pod: Object, now: datetime) -> Cells:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    row = pod_row(pod)
    restarts = str(row.restarts)
    if row.restarts and row.restarted_at:
        restarts = f"{restarts} ({since(row.restarted_at, now)} ago)"
    address = next((each.get("ip") for each in status.get("podIPs", ())), "")
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates", ())]
    held = {each.get("type") for each in status.get("conditions", ()) if each.get("status") == "True"}
    return [
        pod["metadata"]["name"],
        f"{row.ready}/{row.total}",
        row.reason,
        restarts,
        _age(pod, now),
        address or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{sum(gate in held for gate in gates)}/{len(gates)}" if gates else NONE,
    ]


def _service(service: Object, now: datetime) -> Cells:
    spec = service.get("spec", {})
    return [
        service["metadata"]["name"],
        spec.get("type", ""),
        next(iter(spec.get("clusterIPs", ())), NONE),
        _external_address(service),
        ",".join(map(_service_port, spec.get("ports", ()))) or NONE,
        _age(service, now),
        ",".join(f"{key}={value}" for key, value in sorted(spec.get("selector", {}).items())) or NONE,
    ]


def _external_address(service: Object) -> str:
    spec = service.get("spec", {})
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    balanced = sorted({each.get("ip") or each.get("hostname", "") for each in ingress} - {""})
    addresses = (balanced if spec.get("type") == "LoadBalancer" else []) + spec.get("externalIPs", [])
    return ",".join(addresses) or ("<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def _service_port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', 'TCP')}"


_ROLE = "node-role.kubernetes.io/"


def _node(node: Object, now: datetime) -> Cells:
    info = node.get("status", {}).get("nodeInfo", {})
    kernel = info.get("kernelVersion") or UNKNOWN
    return [
        node["metadata"]["name"],
        _node_status(node),
        _node_roles(node["metadata"].get("labels", {})),
        _age(node, now),
        info.get("kubeletVersion", ""),
        _node_address(node, "InternalIP"),
        _node_address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(node: Object) -> str:
    ready = next((each for each in node.get("status", {}).get("conditions", ()) if each.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    return f"{word},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else word


def _node_roles(labels: Object) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(node: Object, type_: str) -> str:
    addresses = node.get("status", {}).get("addresses", ())
    return next((each.get("address", "") for each in addresses if each.get("type") == type_), NONE)


def _job(job: Object, now: datetime) -> Cells:
    spec, status = job["spec"], job.get("status", {})
    containers = spec["template"]["spec"].get("containers", ())
    selector = spec.get("selector", {}).get("matchLabels", {})
    return [
        job["metadata"]["name"],
        _job_status(job),
        _completions(spec, status),
        _duration(status, now),
        _age(job, now),
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE,
    ]


def _job_status(job: Object) -> str:
    held = {each.get("type") for each in job["status"].get("conditions", ()) if each.get("status") == "True"}
    is_going = "deletionTimestamp" in job["metadata"]
    words = {
        "Complete": "Complete" in held,
        "Failed": "Failed" in held,
        "Terminating": is_going,
        "Suspended": "Suspended" in held,
        "FailureTarget": "FailureTarget" in held,
        "SuccessCriteriaMet": "SuccessCriteriaMet" in held,
    }
    return next((word for word, is_so in words.items() if is_so), "Running")


def _completions(spec: Object, status: Object) -> str:
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(status: Object, now: datetime) -> str:
    start, end = moment(status.get("startTime")), moment(status.get("completionTime"))
    return "" if start is None else human(((end or now) - start).total_seconds())


def _event(event: Object, now: datetime) -> Cells:
    series = event.get("series")
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = (series or {}).get("lastObservedTime") if series else event.get("lastTimestamp") or first
    about, source = event.get("involvedObject", {}), event.get("source", {})
    name = f"/{about['name']}" if about.get("name") else ""
    origin = [
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    ]
    return [
        since(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}{name}",
        about.get("fieldPath", ""),
        ", ".join(filter(None, origin)),
        event.get("message", "").strip(),
        since(first, now),
        series.get("count", 0) if series else event.get("count") or 1,
        event["metadata"]["name"],
    ]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


_LAYOUTS: dict[str, Layout] = {
    "pods": Layout(
        (
            _NAME,
            Column("Ready"),
            Column("Status"),
            Column("Restarts"),
            _AGE,
            Column("IP", 1),
            Column("Node", 1),
            Column("Nominated Node", 1),
            Column("Readiness Gates", 1),
        ),
        _pod,
    ),
    "services": Layout(
        (
            _NAME,
            Column("Type"),
            Column("Cluster-IP"),
            Column("External-IP"),
            Column("Port(s)"),
            _AGE,
            Column("Selector", 1),
        ),
        _service,
    ),
    "nodes": Layout(
        (
            _NAME,
            Column("Status"),
            Column("Roles"),
            _AGE,
            Column("Version"),
            Column("Internal-IP", 1),
            Column("External-IP", 1),
            Column("OS-Image", 1),
            Column("Kernel-Version", 1),
            Column("Container-Runtime", 1),
        ),
        _node,
    ),
    "jobs.batch": Layout(
        (
            _NAME,
            Column("Status"),
            Column("Completions"),
            Column("Duration"),
            _AGE,
            Column("Containers", 1),
            Column("Images", 1),
            Column("Selector", 1),
        ),
        _job,
    ),
    "events": Layout(
        (
            Column("Last Seen"),
            Column("Type"),
            Column("Reason"),
            Column("Object"),
            Column("Subobject", 1),
            Column("Source", 1),
            Column("Message"),
            Column("First Seen", 1),
            Column("Count", 1),
            Column("Name", 1, format="name"),
        ),
        _event,
    ),
    "namespaces": Layout(
        (_NAME, Column("Status"), _AGE),
        lambda obj, now: [_name(obj), obj.get("status", {}).get("phase", ""), _age(obj, now)],
    ),
    "configmaps": Layout(
        (_NAME, Column("Data"), _AGE),
        lambda obj, now: [_name(obj), len(obj.get("data", ())) + len(obj.get("binaryData", ())), _age(obj, now)],
    ),
    "secrets": Layout(
        (_NAME, Column("Type"), Column("Data"), _AGE),
        lambda obj, now: [_name(obj), obj.get("type", ""), len(obj.get("data", ())), _age(obj, now)],
    ),
    "serviceaccounts": Layout((_NAME, _AGE), lambda obj, now: [_name(obj), _age(obj, now)]),
    "leases.coordination.k8s.io": Layout(
        (_NAME, Column("Holder"), _AGE),
        lambda obj, now: [_name(obj), obj.get("spec", {}).get("holderIdentity", ""), _age(obj, now)],
    ),
    "customresourcedefinitions.apiextensions.k8s.io": Layout(
        (_NAME, Column("Created At", type="date")),
        lambda obj, _: [_name(obj), obj["metadata"].get("creationTimestamp")],
    ),
}
