"""Decodes protobuf bodies, of the few kinds for which kubectl always sends it, such as ``kubectl create configmap``.

Only the fields in the tables are decoded. A body with an unknown field is refused, so that nothing is lost silently.
Answers are always JSON.
"""

import base64
import datetime
from collections.abc import Iterator
from typing import Any

from trainmaster.local.apiserver.objects.state import timestamp

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _LENGTH = 0, 2
# Field number: name and type. A star marks a repeated field, braces a map from strings.
_Fields = dict[int, tuple[str, str]]
_TYPES: dict[str, _Fields] = {
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{str"),
        3: ("binaryData", "{bytes"),
        4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{bytes"),
        3: ("type", "str"),
        4: ("stringData", "{str"),
        5: ("immutable", "bool"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec"), 3: ("status", "NamespaceStatus")},
    "NamespaceSpec": {1: ("finalizers", "*str")},
    "NamespaceStatus": {1: ("phase", "str")},
    "ServiceAccount": {
        1: ("metadata", "ObjectMeta"),
        3: ("imagePullSecrets", "*LocalObjectReference"),
        4: ("automountServiceAccountToken", "bool"),
    },
    "LocalObjectReference": {1: ("name", "str")},
    "Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec"), 3: ("status", "ServiceStatus")},
    "ServiceSpec": {
        1: ("ports", "*ServicePort"),
        2: ("selector", "{str"),
        3: ("clusterIP", "str"),
        4: ("type", "str"),
        5: ("externalIPs", "*str"),
        7: ("sessionAffinity", "str"),
        8: ("loadBalancerIP", "str"),
        9: ("loadBalancerSourceRanges", "*str"),
        10: ("externalName", "str"),
        11: ("externalTrafficPolicy", "str"),
        12: ("healthCheckNodePort", "int"),
        13: ("publishNotReadyAddresses", "bool"),
        17: ("ipFamilyPolicy", "str"),
        18: ("clusterIPs", "*str"),
        19: ("ipFamilies", "*str"),
        22: ("internalTrafficPolicy", "str"),
    },
    "ServicePort": {
        1: ("name", "str"),
        2: ("protocol", "str"),
        3: ("port", "int"),
        4: ("targetPort", "IntOrString"),
        5: ("nodePort", "int"),
        6: ("appProtocol", "str"),
    },
    "IntOrString": {1: ("type", "int"), 2: ("intVal", "int"), 3: ("strVal", "str")},
    "ServiceStatus": {1: ("loadBalancer", "LoadBalancerStatus")},
    "LoadBalancerStatus": {},
    "Job": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec"), 3: ("status", "JobStatus")},
    "JobSpec": {
        1: ("parallelism", "int"),
        2: ("completions", "int"),
        3: ("activeDeadlineSeconds", "int"),
        6: ("template", "PodTemplateSpec"),
        7: ("backoffLimit", "int"),
        8: ("ttlSecondsAfterFinished", "int"),
        10: ("suspend", "bool"),
    },
    "JobStatus": {4: ("active", "int"), 5: ("succeeded", "int"), 6: ("failed", "int"), 7: ("completedIndexes", "str")},
    "PodTemplateSpec": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "PodSpec": {
        2: ("containers", "*Container"),
        3: ("restartPolicy", "str"),
        6: ("dnsPolicy", "str"),
        8: ("serviceAccountName", "str"),
        9: ("serviceAccount", "str"),
        10: ("nodeName", "str"),
        11: ("hostNetwork", "bool"),
        12: ("hostPID", "bool"),
        13: ("hostIPC", "bool"),
        16: ("hostname", "str"),
        17: ("subdomain", "str"),
        19: ("schedulerName", "str"),
        24: ("priorityClassName", "str"),
    },
    "Container": {
        1: ("name", "str"),
        2: ("image", "str"),
        3: ("command", "*str"),
        4: ("args", "*str"),
        5: ("workingDir", "str"),
        8: ("resources", "ResourceRequirements"),
        13: ("terminationMessagePath", "str"),
        14: ("imagePullPolicy", "str"),
        16: ("stdin", "bool"),
        17: ("stdinOnce", "bool"),
        18: ("tty", "bool"),
        20: ("terminationMessagePolicy", "str"),
    },
    "ResourceRequirements": {},
    "SelfSubjectAccessReview": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "SelfSubjectAccessReviewSpec"),
        3: ("status", "ignored"),
    },
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "str"),
        2: ("verb", "str"),
        3: ("group", "str"),
        4: ("version", "str"),
        5: ("resource", "str"),
        6: ("subresource", "str"),
        7: ("name", "str"),
    },
    "NonResourceAttributes": {1: ("path", "str"), 2: ("verb", "str")},
    "SelfSubjectRulesReview": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "SelfSubjectRulesReviewSpec"),
        3: ("status", "ignored"),
    },
    "SelfSubjectRulesReviewSpec": {1: ("namespace", "str")},
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta"), 2: ("status", "ignored")},
    "TokenReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenReviewSpec"), 3: ("status", "ignored")},
    "TokenReviewSpec": {1: ("token", "str"), 2: ("audiences", "*str")},
    "ObjectMeta": {
        1: ("name", "str"),
        2: ("generateName", "str"),
        3: ("namespace", "str"),
        4: ("selfLink", "str"),
        5: ("uid", "str"),
        6: ("resourceVersion", "str"),
        7: ("generation", "int"),
        8: ("creationTimestamp", "Time"),
        9: ("deletionTimestamp", "Time"),
        10: ("deletionGracePeriodSeconds", "int"),
        11: ("labels", "{str"),
        12: ("annotations", "{str"),
        13: ("ownerReferences", "*OwnerReference"),
        14: ("finalizers", "*str"),
    },
    "OwnerReference": {
        1: ("kind", "str"),
        3: ("name", "str"),
        4: ("uid", "str"),
        5: ("apiVersion", "str"),
        6: ("controller", "bool"),
        7: ("blockOwnerDeletion", "bool"),
    },
    "Time": {1: ("seconds", "int"), 2: ("nanos", "int")},
    "Envelope": {1: ("type", "TypeMeta"), 2: ("raw", "raw"), 3: ("encoding", "str"), 4: ("contentType", "str")},
    "TypeMeta": {1: ("apiVersion", "str"), 2: ("kind", "str")},
}
_REVIEWS = ("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview", "TokenReview")
KINDS = frozenset({"ConfigMap", "Secret", "Namespace", "ServiceAccount", "Service", "Job", *_REVIEWS})


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, as JSON would give it; raises ValueError."""
    if not body.startswith(_MAGIC):
        raise ValueError("it is not a Kubernetes object")
    envelope = _message(body[len(_MAGIC) :], "Envelope")
    type_meta = envelope.get("type", {})
    kind = type_meta.get("kind", "")
    if kind not in KINDS:
        raise ValueError(f"a {kind or 'object without a kind'} cannot be decoded from protobuf; send JSON")
    return {**type_meta, **_message(envelope.get("raw", b""), kind)}


def _message(data: bytes, type_: str) -> dict[str, Any]:
    fields = _TYPES[type_]
    message: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in fields:
            raise ValueError(f"field {number} of a {type_} cannot be decoded from protobuf; send JSON")
        name, of = fields[number]
        if of[0] == "*":
            message.setdefault(name, []).append(_value(value, of[1:]))
        elif of[0] == "{":
            key, item = _entry(value, of[1:])
            message.setdefault(name, {})[key] = item
        else:
            message[name] = _value(value, of)
    return message


def _entry(value: int | bytes, of: str) -> tuple[str, str]:
    if isinstance(value, int):
        raise ValueError("found a number instead of an entry of a map")  # noqa: TRY004 – callers know one error
    pair = dict(_fields(value))
    return str(_value(pair.get(1, b""), "str")), str(_value(pair.get(2, b""), of))


def _value(value: int | bytes, of: str) -> Any:
    if isinstance(value, int):
        if of not in ("int", "bool"):
            raise ValueError(f"found a number instead of {of}")
        signed = value - 2**64 if value >= 2**63 else value
        return bool(value) if of == "bool" else signed
    match of:
        case "str":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "raw":
            return value
        case "ignored":
            return {}
        case "Time":
            return _time(_message(value, of))
        case "IntOrString":
            int_or_string = _message(value, of)
            return int_or_string.get("strVal", "") if int_or_string.get("type") else int_or_string.get("intVal", 0)
        case "int" | "bool":
            raise ValueError(f"found bytes instead of {of}")
        case _:
            return _message(value, of)


def _time(message: dict[str, Any]) -> str | None:
    """An unset time is an empty message."""
    if not message:
        return None
    try:
        return timestamp(datetime.datetime.fromtimestamp(message.get("seconds", 0), datetime.UTC))
    except (OverflowError, OSError) as error:
        raise ValueError("invalid time") from error


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if tag & 7 == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
        elif tag & 7 == _LENGTH:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("it ends too early")
            yield tag >> 3, data[position : position + length]
            position += length
        else:
            raise ValueError(f"wire type {tag & 7} is not used by these kinds")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("it ends too early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value & (2**64 - 1), position
