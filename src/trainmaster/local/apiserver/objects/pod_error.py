"""What is wrong with a pod, in kube-apiserver's words."""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects import quantity
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.label import key_complaints, subdomain_complaints, value_complaints
from trainmaster.local.apiserver.objects.word import env_complaints, label_complaints, port_complaints

Object = dict[str, Any]

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULLS = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGES = ("File", "FallbackToLogsOnError")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_RESOURCE_FIELDS = tuple(
    f"{word}.{name}" for word in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_FIELDS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels",
        "metadata.annotations",
        "spec.nodeName",
        "spec.serviceAccountName",
        "spec.restartPolicy",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "status.phase",
    }
)
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
INT32_MAX = 2**31 - 1


def errors(pod: Object) -> list[Cause]:
    """All that is wrong with the spec of a pod that was defaulted."""
    return list(_spec_errors(pod.get("spec", {})))


def _one_of(field: str, value: Any, words: tuple[str, ...]) -> Iterator[Cause]:
    if value not in words:
        yield cause.unsupported_value(field, value, words)


def _spec_errors(spec: Object) -> Iterator[Cause]:
    volumes = {each.get("name", "") for each in spec.get("volumes", ())}
    yield from _volumes_errors(spec.get("volumes", []))
    yield from _containers_errors(spec, volumes)
    yield from _one_of("spec.restartPolicy", spec.get("restartPolicy"), _RESTARTS)
    yield from _one_of("spec.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    yield from _map_errors("spec.nodeSelector", spec.get("nodeSelector", {}))
    yield from _tolerations_errors(spec.get("tolerations", []))
    yield from _host_alias_errors(spec.get("hostAliases", []))
    for field, complaints in (
        ("hostname", label_complaints),
        ("subdomain", label_complaints),
        ("nodeName", subdomain_complaints),
    ):
        if spec.get(field):
            yield from (cause.invalid(f"spec.{field}", spec[field], each) for each in complaints(spec[field]))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= INT32_MAX:
        says = f"must be between 1 and {INT32_MAX}, inclusive"
        yield cause.invalid("spec.activeDeadlineSeconds", seconds, says)


def _map_errors(field: str, labels: Object) -> Iterator[Cause]:
    for key, value in sorted(labels.items()):
        yield from (cause.invalid(field, key, each) for each in key_complaints(key))
        yield from (cause.invalid(field, value, each) for each in value_complaints(value))


# -- containers ------------------------------------------------------------------------------------------------


def _containers_errors(spec: Object, volumes: set[str]) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield cause.required("spec.containers")
    names: set[str] = set()
    host_ports: set[str] = set()
    for index, container in enumerate(spec.get("containers", [])):
        where = f"spec.containers[{index}]"
        yield from _container_errors(container, where, spec, volumes, names)
        yield from _host_port_duplicates(container, where, host_ports)
    for index, container in enumerate(spec.get("initContainers", [])):
        where = f"spec.initContainers[{index}]"
        yield from _container_errors(container, where, spec, volumes, names)
        yield from _init_errors(container, where)


def _container_errors(
    container: Object, where: str, spec: Object, volumes: set[str], names: set[str]
) -> Iterator[Cause]:
    yield from _name_errors(container.get("name", ""), f"{where}.name", names)
    image = container.get("image", "")
    if not image:
        yield cause.required(f"{where}.image")
    elif image != image.strip():
        yield cause.invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
    for word in _PROBES:
        if word in container:
            yield from _probe_errors(container[word], f"{where}.{word}")
    for word in ("postStart", "preStop"):
        handler = container.get("lifecycle", {}).get(word)
        if handler is not None:
            yield from _handler_errors(handler, f"{where}.lifecycle.{word}")
    yield from _one_of(f"{where}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGES)
    yield from _ports_errors(container.get("ports", []), f"{where}.ports", is_host=bool(spec.get("hostNetwork")))
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable_errors(variable, f"{where}.env[{index}]")
    for index, source in enumerate(container.get("envFrom", ())):
        yield from _env_from_errors(source, f"{where}.envFrom", index)
    yield from _mounts_errors(container.get("volumeMounts", []), f"{where}.volumeMounts", volumes)
    yield from _one_of(f"{where}.imagePullPolicy", container.get("imagePullPolicy"), _PULLS)
    yield from _resources_errors(container.get("resources", {}), f"{where}.resources")


def _name_errors(name: str, field: str, seen: set[str]) -> Iterator[Cause]:
    if not name:
        yield cause.required(field)
        return
    complaints = label_complaints(name)
    yield from (cause.invalid(field, name, each) for each in complaints)
    if not complaints and name in seen:
        yield cause.duplicate(field, name)
    seen.add(name)


def _init_errors(container: Object, where: str) -> Iterator[Cause]:
    policy = container.get("restartPolicy")
    if policy is not None:
        yield from _one_of(f"{where}.restartPolicy", policy, tuple(sorted(_RESTARTS)))
    elif policy != "Always":
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in container:
                says = "may not be set for init containers without restartPolicy=Always"
                yield cause.forbidden(f"{where}.{field}", says)


def _ports_errors(ports: list[Object], where: str, *, is_host: bool) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{where}[{index}]"
        name = port.get("name", "")
        if name:
            complaints = port_complaints(name)
            yield from (cause.invalid(f"{at}.name", name, each) for each in complaints)
            if not complaints and name in names:
                yield cause.duplicate(f"{at}.name", name)
            names.add(name)
        number, host = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            yield cause.required(f"{at}.containerPort")
        else:
            yield from port_number_errors(f"{at}.containerPort", number)
        if host:
            yield from port_number_errors(f"{at}.hostPort", host)
            if is_host and host != number:
                yield cause.invalid(f"{at}.hostPort", host, "must match `containerPort` when `hostNetwork` is true")
        yield from _one_of(f"{at}.protocol", port.get("protocol"), _PROTOCOLS)


def port_number_errors(field: str, number: int) -> Iterator[Cause]:
    if not 1 <= number <= 65535:
        yield cause.invalid(field, number, "must be between 1 and 65535, inclusive")


def _host_port_duplicates(container: Object, where: str, seen: set[str]) -> Iterator[Cause]:
    for index, port in enumerate(container.get("ports", ())):
        if port.get("hostPort"):
            identity = f"{port.get('protocol')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if identity in seen:
                yield cause.duplicate(f"{where}.ports[{index}].hostPort", identity)
            seen.add(identity)


def _variable_errors(variable: Object, where: str) -> Iterator[Cause]:
    name = variable.get("name", "")
    if not name:
        yield cause.required(f"{where}.name")
    else:
        yield from (cause.invalid(f"{where}.name", name, each) for each in env_complaints(name))
    source = variable.get("valueFrom")
    if source is not None:
        yield from _source_errors(source, f"{where}.valueFrom", has_value=bool(variable.get("value")))


def _source_errors(source: Object, where: str, *, has_value: bool) -> Iterator[Cause]:
    given = [word for word in _SOURCES if word in source]
    for word in given:
        yield from _reference_errors(word, source[word], f"{where}.{word}")
    if not given:
        *words, last = [f"`{word}`" for word in _SOURCES]
        yield cause.invalid(where, "", f"must specify one of: {', '.join(words)} or {last}")
    elif has_value:
        yield cause.invalid(where, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield cause.invalid(where, "", "may not have more than one field specified at a time")


def _reference_errors(word: str, reference: Object, where: str) -> Iterator[Cause]:
    match word:
        case "fieldRef":
            yield from _field_reference_errors(reference.get("fieldPath", ""), f"{where}.fieldPath")
        case "resourceFieldRef":
            resource = reference.get("resource", "")
            if not resource:
                yield cause.required(f"{where}.resource")
            elif resource not in _RESOURCE_FIELDS and not _is_huge_page(resource):
                yield cause.unsupported_value(f"{where}.resource", resource, _RESOURCE_FIELDS)
        case "configMapKeyRef" | "secretKeyRef":
            name = reference.get("name", "")
            yield from (cause.invalid(f"{where}.name", name, each) for each in subdomain_complaints(name))
            if not reference.get("key"):
                yield cause.required(f"{where}.key")


def _is_huge_page(resource: str) -> bool:
    return resource.startswith(("limits.hugepages-", "requests.hugepages-"))


def _field_reference_errors(path: str, where: str) -> Iterator[Cause]:
    if not path:
        yield cause.required(where)
        return
    base = path.partition("['")[0] if path.endswith("']") else path
    if base not in _FIELDS or (base != path and base not in ("metadata.labels", "metadata.annotations")):
        says = f"error converting fieldPath: field label not supported: {path}"
        yield cause.invalid(where, path, says)


def _env_from_errors(source: Object, where: str, index: int) -> Iterator[Cause]:
    prefix = source.get("prefix", "")
    if prefix:
        yield from (cause.invalid(f"{where}[{index}].prefix", prefix, each) for each in env_complaints(prefix))
    given = [word for word in ("configMapRef", "secretRef") if word in source]
    for word in given:
        if not source[word].get("name"):
            yield cause.required(f"{where}[{index}].{word}.name")
    if not given:
        yield cause.invalid(where, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield cause.invalid(where, "", "may not have more than one field specified at a time")


def _mounts_errors(mounts: list[Object], where: str, volumes: set[str]) -> Iterator[Cause]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{where}[{index}]"
        name, path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield cause.required(f"{at}.name")
        if not path:
            yield cause.required(f"{at}.mountPath")
        if not name or name not in volumes:
            yield cause.not_found(f"{at}.name", name)
        if path and path in paths:
            yield cause.invalid(f"{at}.mountPath", path, "must be unique")
        paths.add(path)
        for word in ("subPath", "subPathExpr"):
            if mount.get(word):
                yield from _local_path_errors(mount[word], f"{where}.{word}")


def _local_path_errors(path: str, field: str) -> Iterator[Cause]:
    if path.startswith("/"):
        yield cause.invalid(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield cause.invalid(field, path, "must not contain '..'")


def _resources_errors(resources: Object, where: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for word, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount_errors(name, amount, f"{where}.{word}[{name}]")
    for name, amount in requests.items():
        if name in limits:
            if quantity.number(amount) > quantity.number(limits[name]):
                says = f"must be less than or equal to {name} limit of {limits[name]}"
                yield cause.invalid(f"{where}.requests", amount, says)
        elif name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
            yield cause.required(f"{where}.limits", "Limit must be set for non overcommitable resources")


def _amount_errors(name: str, amount: str, field: str) -> Iterator[Cause]:
    if name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield from (cause.invalid(field, name, each) for each in key_complaints(name))
        if "/" not in name:
            yield cause.invalid(field, name, "must be a standard resource type or fully qualified")
            yield cause.invalid(field, name, "must be a standard resource for containers")
            return
    number = quantity.number(amount)
    if number < 0:
        yield cause.invalid(field, amount, "must be greater than or equal to 0")
    if name not in _STANDARD_RESOURCES and number != number.to_integral_value():
        yield cause.invalid(field, amount, "must be an integer")


def _probe_errors(probe: Object, where: str) -> Iterator[Cause]:
    yield from _handler_errors(probe, where)
    for word in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if probe.get(word, 0) < 0:
            yield cause.invalid(f"{where}.{word}", probe[word], "must be greater than or equal to 0")
    if not where.endswith("readinessProbe") and probe.get("successThreshold", 1) != 1:
        yield cause.invalid(f"{where}.successThreshold", probe["successThreshold"], "must be 1")


def _handler_errors(handler: Object, where: str) -> Iterator[Cause]:
    given = [word for word in _HANDLERS if word in handler]
    if not given:
        yield cause.required(where, "must specify a handler type")
        return
    for word in given[1:]:
        yield cause.forbidden(f"{where}.{word}", "may not specify more than 1 handler type")
    word = given[0]
    if word == "exec" and not handler["exec"].get("command"):
        yield cause.required(f"{where}.exec.command")
    if word in ("httpGet", "tcpSocket"):
        yield from _port_errors(handler[word].get("port", 0), f"{where}.{word}.port")
    if word == "grpc":
        yield from port_number_errors(f"{where}.grpc.port", handler[word].get("port", 0))


def _port_errors(port: int | str, field: str) -> Iterator[Cause]:
    if isinstance(port, str):
        yield from (cause.invalid(field, port, each) for each in port_complaints(port))
    else:
        yield from port_number_errors(field, port)


# -- volumes, tolerations, hosts -------------------------------------------------------------------------------


def _volumes_errors(volumes: list[Object]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        where = f"spec.volumes[{index}]"
        name = volume.get("name", "")
        found = list(_volume_errors(volume, where))
        yield from found
        if name in names and not any(each.field == f"{where}.name" for each in found):
            yield cause.duplicate(f"{where}.name", name)
        if not found:
            names.add(name)


def _volume_errors(volume: Object, where: str) -> Iterator[Cause]:
    sources = [word for word in volume if word != "name"]
    for word in sorted(sources)[1:]:
        yield cause.forbidden(f"{where}.{word}", "may not specify more than 1 volume type")
    if len(sources) == 1:
        yield from _source_volume_errors(sources[0], volume[sources[0]], f"{where}.{sources[0]}")
    yield from _name_errors(volume.get("name", ""), f"{where}.name", set())


def _source_volume_errors(word: str, source: Object, where: str) -> Iterator[Cause]:
    match word:
        case "hostPath":
            if not source.get("path"):
                yield cause.required(f"{where}.path")
            elif ".." in source["path"].split("/"):
                yield cause.invalid(f"{where}.path", source["path"], "must not contain '..'")
            yield from _one_of(f"{where}.type", source.get("type", ""), _HOST_PATHS)
        case "configMap" | "secret":
            name = "name" if word == "configMap" else "secretName"
            if not source.get(name):
                yield cause.required(f"{where}.{name}")
            yield from _files_errors(source, where)
        case "persistentVolumeClaim" if not source.get("claimName"):
            yield cause.required(f"{where}.claimName")


def _files_errors(source: Object, where: str) -> Iterator[Cause]:
    yield from _mode_errors(source.get("defaultMode"), f"{where}.defaultMode")
    for index, item in enumerate(source.get("items", ())):
        at = f"{where}.items[{index}]"
        if not item.get("key"):
            yield cause.required(f"{at}.key")
        if not item.get("path"):
            yield cause.required(f"{at}.path")
        else:
            yield from _local_path_errors(item["path"], f"{at}.path")
        yield from _mode_errors(item.get("mode"), f"{at}.mode")


def _mode_errors(mode: int | None, field: str) -> Iterator[Cause]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield cause.invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _tolerations_errors(tolerations: list[Object]) -> Iterator[Cause]:
    for index, each in enumerate(tolerations):
        where = f"spec.tolerations[{index}]"
        key, operator = each.get("key", ""), each.get("operator", "")
        if key:
            yield from (cause.invalid(f"{where}.key", key, says) for says in key_complaints(key))
        elif operator != "Exists":
            says = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield cause.invalid(f"{where}.operator", operator, says)
        if operator == "Exists" and each.get("value"):
            yield cause.invalid(f"{where}.operator", each["value"], "value must be empty when `operator` is 'Exists'")
        if operator not in ("", "Equal", "Exists"):
            yield cause.unsupported_value(f"{where}.operator", operator, ("Equal", "Exists"))
        if each.get("effect"):
            yield from _one_of(f"{where}.effect", each["effect"], _EFFECTS)


def _host_alias_errors(aliases: list[Object]) -> Iterator[Cause]:
    for index, alias in enumerate(aliases):
        where = f"spec.hostAliases[{index}]"
        yield from ip_errors(alias.get("ip", ""), f"{where}.ip")
        for place, name in enumerate(alias.get("hostnames", ())):
            yield from (cause.invalid(f"{where}.hostnames[{place}]", name, each) for each in subdomain_complaints(name))


def ip_errors(text: str, field: str) -> Iterator[Cause]:
    try:
        ip_address(text)
    except ValueError:
        yield cause.invalid(field, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


# -- updates ---------------------------------------------------------------------------------------------------

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_errors(pod: Object, old: Object) -> list[Cause]:
    """What changed that may not."""
    return list(_update_errors(pod["spec"], old["spec"]))


def _update_errors(spec: Object, old: Object) -> Iterator[Cause]:
    for word in ("containers", "initContainers"):
        if len(spec.get(word, ())) != len(old.get(word, ())):
            yield cause.forbidden(f"spec.{word}", "pod updates may not add or remove containers")
            return
    seconds, before = spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if before is not None and seconds is None:
        yield cause.invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif before is not None and seconds is not None and seconds > before:
        yield cause.invalid("spec.activeDeadlineSeconds", seconds, "must be less than or equal to previous value")
    if any(each not in spec.get("tolerations", ()) for each in old.get("tolerations", ())):
        says = "existing toleration can not be modified except its tolerationSeconds"
        yield cause.forbidden("spec.tolerations", says)
    if _fixed(spec) != _fixed(old):
        yield cause.forbidden("spec", _CHANGEABLE)


def _fixed(spec: Object) -> str:
    """The part of a spec that never changes, as text."""
    kept = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for word in ("containers", "initContainers"):
        kept[word] = [{**container, "image": ""} for container in kept.get(word, ())]
    return json.dumps(kept, sort_keys=True)
