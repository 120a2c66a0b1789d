"""Services: what is filled in, and what is wrong."""

import hashlib
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.label import key_complaints, value_complaints
from trainmaster.local.apiserver.objects.pod_error import ip_errors, port_number_errors
from trainmaster.local.apiserver.objects.word import label_complaints, port_complaints

Object = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_OPENED = ("NodePort", "LoadBalancer")
HEADLESS = "None"
# How kube-apiserver shows a port that occurs twice: its internal type, with all that does not matter left blank.
_INTERNAL_PORT = '{"Name":"","Protocol":"%s","AppProtocol":null,"Port":%d,"TargetPort":0,"NodePort":0}'
# Where kube-apiserver takes them from by default; nothing answers there: a service is a name here.
_FIRST_ADDRESS = int(IPv4Address("10.96.0.1"))
_ADDRESSES = 2**20 - 2
_FIRST_NODE_PORT, _NODE_PORTS = 30_000, 2_768


def default(service: Object) -> None:
    """Fill in the spec; what is there stays."""
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] in _OPENED:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    service.setdefault("status", {}).setdefault("loadBalancer", {})


def allocate(service: Object, old: Object | None) -> None:
    """Give a service its address and node ports, or keep those that it has."""
    spec, before = service["spec"], (old or {}).get("spec", {})
    if spec["type"] == "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            spec.pop(field, None)
        return
    _allocate_address(spec, before, service["metadata"].get("uid", ""))
    if spec["type"] in _OPENED:
        _allocate_ports(spec, before, service["metadata"].get("uid", ""))


def _allocate_address(spec: Object, before: Object, uid: str) -> None:
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs", ())), "") or before.get("clusterIP", "")
    spec["clusterIP"] = address or str(IPv4Address(_FIRST_ADDRESS + _number(uid) % _ADDRESSES))
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    # A headless service without a selector may have addresses of both families.
    is_open = spec["clusterIP"] == HEADLESS and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if is_open else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_open else "SingleStack")


def _allocate_ports(spec: Object, before: Object, uid: str) -> None:
    kept = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in before.get("ports", ())}
    for index, port in enumerate(spec.get("ports", ())):
        if not port.get("nodePort"):
            chosen = _FIRST_NODE_PORT + (_number(uid) + index) % _NODE_PORTS
            port["nodePort"] = kept.get((port.get("port"), port.get("protocol"))) or chosen


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def errors(service: Object, old: Object | None) -> list[Cause]:
    """All that is wrong with the spec of a service that was defaulted."""
    return [*_spec_errors(service["spec"]), *_update_errors(service["spec"], (old or {}).get("spec", {}))]


def _spec_errors(spec: Object) -> Iterator[Cause]:
    if not spec.get("ports") and spec.get("clusterIP") != HEADLESS and spec["type"] != "ExternalName":
        yield cause.required("spec.ports")
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield cause.required("spec.externalName")
    yield from _ports_errors(spec)
    for key, value in sorted(spec.get("selector", {}).items()):
        yield from (cause.invalid("spec.selector", key, each) for each in key_complaints(key))
        yield from (cause.invalid("spec.selector", value, each) for each in value_complaints(value))
    if spec["sessionAffinity"] not in ("ClientIP", "None"):
        yield cause.unsupported_value("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))
    if spec["type"] not in _TYPES:
        yield cause.unsupported_value("spec.type", spec["type"], _TYPES)
    for index, address in enumerate(spec.get("clusterIPs", ())):
        if address != HEADLESS:
            yield from ip_errors(address, f"spec.clusterIPs[{index}]")


def _ports_errors(spec: Object) -> Iterator[Cause]:
    ports = spec.get("ports", [])
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_errors(port, f"spec.ports[{index}]", names, needs_name=len(ports) > 1)
        if spec["type"] == "ClusterIP" and port.get("nodePort"):
            yield cause.forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        identity = (port.get("protocol", ""), port.get("port", 0))
        if identity in seen:
            shown = _INTERNAL_PORT % identity
            yield Cause(f"spec.ports[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown}")
        seen.add(identity)


def _port_errors(port: Object, where: str, names: set[str], *, needs_name: bool) -> Iterator[Cause]:
    name = port.get("name", "")
    if not name and needs_name:
        yield cause.required(f"{where}.name")
    elif name:
        yield from (cause.invalid(f"{where}.name", name, each) for each in label_complaints(name))
        if name in names:
            yield cause.duplicate(f"{where}.name", name)
        names.add(name)
    yield from port_number_errors(f"{where}.port", port.get("port", 0))
    if port.get("protocol") not in _PROTOCOLS:
        yield cause.unsupported_value(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, str):
        yield from (cause.invalid(f"{where}.targetPort", target, each) for each in port_complaints(target))
    elif isinstance(target, int):
        yield from port_number_errors(f"{where}.targetPort", target)


def _update_errors(spec: Object, before: Object) -> Iterator[Cause]:
    was, now = before.get("clusterIPs"), spec.get("clusterIPs")
    if was and now and "ExternalName" not in (before.get("type"), spec["type"]) and was[0] != now[0]:
        yield cause.invalid("spec.clusterIPs[0]", now, "may not change once set")
