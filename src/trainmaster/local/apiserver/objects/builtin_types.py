"""The built-in kinds as tables: which fields there are, of which types, and what a strategic merge patch merges by.

A built-in object goes through ``read`` before anything else happens to it, as it goes through Go's decoder in
kube-apiserver: unknown fields fall out, a wrong type is an error, quantities get their canonical form, and what says
nothing (null, empty lists, zeros that are not pointers) disappears.
"""

import base64
import binascii
import copy
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from trainmaster.local.apiserver.objects.quantity import BadQuantity, canonical

_TABLE = """
Pod = apiVersion:str kind:str metadata:ObjectMeta spec:PodSpec status:PodStatus
ObjectMeta = annotations?:{str} creationTimestamp:time deletionGracePeriodSeconds:int64 deletionTimestamp:time
    finalizers?:[str]~ generateName?:str generation?:int64 labels?:{str} managedFields?:[any] name?:str
    namespace?:str ownerReferences?:[OwnerReference]~uid resourceVersion?:str selfLink?:str uid?:str
OwnerReference = apiVersion:str blockOwnerDeletion:bool controller:bool kind:str name:str uid:str
PodSpec = activeDeadlineSeconds:int64 affinity:Affinity automountServiceAccountToken:bool
    containers:[Container]~name dnsConfig:PodDNSConfig dnsPolicy?:str enableServiceLinks:bool
    ephemeralContainers?:[any]~name hostAliases?:[HostAlias]~ip hostIPC?:bool hostNetwork?:bool hostPID?:bool
    hostUsers:bool hostname?:str hostnameOverride:str imagePullSecrets?:[LocalObjectReference]~name
    initContainers?:[Container]~name nodeName?:str nodeSelector?:{str} os:PodOS overhead?:{quantity}
    preemptionPolicy:str priority:int32 priorityClassName?:str readinessGates?:[PodReadinessGate]
    resourceClaims?:[any]~name resources:ResourceRequirements restartPolicy?:str runtimeClassName:str
    schedulerName?:str schedulingGates?:[PodSchedulingGate]~name schedulingGroup:any
    securityContext:PodSecurityContext serviceAccount?:str serviceAccountName?:str setHostnameAsFQDN:bool
    shareProcessNamespace:bool subdomain?:str terminationGracePeriodSeconds:int64 tolerations?:[Toleration]
    topologySpreadConstraints?:[TopologySpreadConstraint]~topologyKey volumes?:[Volume]~name
Affinity = nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
NodeAffinity = preferredDuringSchedulingIgnoredDuringExecution?:[PreferredSchedulingTerm]
    requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
PreferredSchedulingTerm = preference:NodeSelectorTerm weight:int32
NodeSelectorTerm = matchExpressions?:[NodeSelectorRequirement] matchFields?:[NodeSelectorRequirement]
NodeSelectorRequirement = key:str operator:str values?:[str]
NodeSelector = nodeSelectorTerms:[NodeSelectorTerm]
PodAffinity = preferredDuringSchedulingIgnoredDuringExecution?:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution?:[PodAffinityTerm]
WeightedPodAffinityTerm = podAffinityTerm:PodAffinityTerm weight:int32
PodAffinityTerm = labelSelector:LabelSelector matchLabelKeys?:[str] mismatchLabelKeys?:[str]
    namespaceSelector:LabelSelector namespaces?:[str] topologyKey:str
LabelSelector = matchExpressions?:[LabelSelectorRequirement] matchLabels?:{str}
LabelSelectorRequirement = key:str operator:str values?:[str]
PodAntiAffinity = preferredDuringSchedulingIgnoredDuringExecution?:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution?:[PodAffinityTerm]
Container = args?:[str] command?:[str] env?:[EnvVar]~name envFrom?:[EnvFromSource] image?:str imagePullPolicy?:str
    lifecycle:Lifecycle livenessProbe:Probe name:str ports?:[ContainerPort]~containerPort readinessProbe:Probe
    resizePolicy?:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy:str restartPolicyRules?:[any]
    securityContext:SecurityContext startupProbe:Probe stdin?:bool stdinOnce?:bool terminationMessagePath?:str
    terminationMessagePolicy?:str tty?:bool volumeDevices?:[VolumeDevice]~devicePath
    volumeMounts?:[VolumeMount]~mountPath workingDir?:str
EnvVar = name:str value?:str valueFrom:EnvVarSource
EnvVarSource = configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:any
    resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
ConfigMapKeySelector = key:str name?:str optional:bool
ObjectFieldSelector = apiVersion?:str fieldPath:str
ResourceFieldSelector = containerName?:str divisor:quantity resource:str
SecretKeySelector = key:str name?:str optional:bool
EnvFromSource = configMapRef:ConfigMapEnvSource prefix?:str secretRef:SecretEnvSource
ConfigMapEnvSource = name?:str optional:bool
SecretEnvSource = name?:str optional:bool
Lifecycle = postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:str
LifecycleHandler = exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
ExecAction = command?:[str]
HTTPGetAction = host?:str httpHeaders?:[HTTPHeader] path?:str port:int-or-str scheme?:str
HTTPHeader = name:str value:str
SleepAction = seconds:int64
TCPSocketAction = host?:str port:int-or-str
Probe = exec:ExecAction failureThreshold?:int32 grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds?:int32
    periodSeconds?:int32 successThreshold?:int32 tcpSocket:TCPSocketAction terminationGracePeriodSeconds:int64
    timeoutSeconds?:int32
GRPCAction = port:int32 service:str
ContainerPort = containerPort:int32 hostIP?:str hostPort?:int32 name?:str protocol?:str
ContainerResizePolicy = resourceName:str restartPolicy:str
ResourceRequirements = claims?:[ResourceClaim] limits?:{quantity} requests?:{quantity}
ResourceClaim = name:str request?:str
SecurityContext = allowPrivilegeEscalation:bool appArmorProfile:AppArmorProfile capabilities:Capabilities
    privileged:bool procMount:str readOnlyRootFilesystem:bool runAsGroup:int64 runAsNonRoot:bool runAsUser:int64
    seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile windowsOptions:any
AppArmorProfile = localhostProfile:str type:str
Capabilities = add?:[str] drop?:[str]
SELinuxOptions = level?:str role?:str type?:str user?:str
SeccompProfile = localhostProfile:str type:str
VolumeDevice = devicePath:str name:str
VolumeMount = mountPath:str mountPropagation:str name:str readOnly?:bool recursiveReadOnly:str subPath?:str
    subPathExpr?:str
PodDNSConfig = nameservers?:[str] options?:[PodDNSConfigOption] searches?:[str]
PodDNSConfigOption = name?:str value:str
HostAlias = hostnames?:[str] ip:str
LocalObjectReference = name?:str
PodOS = name:str
PodReadinessGate = conditionType:str
PodSchedulingGate = name:str
PodSecurityContext = appArmorProfile:AppArmorProfile fsGroup:int64 fsGroupChangePolicy:str runAsGroup:int64
    runAsNonRoot:bool runAsUser:int64 seLinuxChangePolicy:str seLinuxOptions:SELinuxOptions
    seccompProfile:SeccompProfile supplementalGroups?:[int64] supplementalGroupsPolicy:str sysctls?:[any]
    windowsOptions:any
Toleration = effect?:str key?:str operator?:str tolerationSeconds:int64 value?:str
TopologySpreadConstraint = labelSelector:LabelSelector matchLabelKeys?:[str] maxSkew:int32 minDomains:int32
    nodeAffinityPolicy:str nodeTaintsPolicy:str topologyKey:str whenUnsatisfiable:str
Volume = awsElasticBlockStore:any azureDisk:any azureFile:any cephfs:any cinder:any configMap:ConfigMapVolumeSource
    csi:any downwardAPI:DownwardAPIVolumeSource emptyDir:EmptyDirVolumeSource ephemeral:any fc:any flexVolume:any
    flocker:any gcePersistentDisk:any gitRepo:any glusterfs:any hostPath:HostPathVolumeSource image:any iscsi:any
    name:str nfs:NFSVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource photonPersistentDisk:any
    portworxVolume:any projected:ProjectedVolumeSource quobyte:any rbd:any scaleIO:any secret:SecretVolumeSource
    storageos:any vsphereVolume:any
ConfigMapVolumeSource = defaultMode:int32 items?:[KeyToPath] name?:str optional:bool
KeyToPath = key:str mode:int32 path:str
DownwardAPIVolumeSource = defaultMode:int32 items?:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile = fieldRef:ObjectFieldSelector mode:int32 path:str resourceFieldRef:ResourceFieldSelector
EmptyDirVolumeSource = medium?:str sizeLimit:quantity
HostPathVolumeSource = path:str type:str
NFSVolumeSource = path:str readOnly?:bool server:str
PersistentVolumeClaimVolumeSource = claimName:str readOnly?:bool
ProjectedVolumeSource = defaultMode:int32 sources:[VolumeProjection]
VolumeProjection = clusterTrustBundle:any configMap:ConfigMapProjection downwardAPI:DownwardAPIProjection
    podCertificate:any secret:SecretProjection serviceAccountToken:any
ConfigMapProjection = items?:[KeyToPath] name?:str optional:bool
DownwardAPIProjection = items?:[DownwardAPIVolumeFile]
SecretProjection = items?:[KeyToPath] name?:str optional:bool
SecretVolumeSource = defaultMode:int32 items?:[KeyToPath] optional:bool secretName?:str
PodStatus = allocatedResources?:{quantity} conditions?:[PodCondition]~type containerStatuses?:[ContainerStatus]
    ephemeralContainerStatuses?:[ContainerStatus] extendedResourceClaimStatus:any hostIP?:str hostIPs?:[HostIP]~ip
    initContainerStatuses?:[ContainerStatus] message?:str nodeAllocatableResourceClaimStatuses?:[any]
    nominatedNodeName?:str observedGeneration?:int64 phase?:str podIP?:str podIPs?:[PodIP]~ip qosClass?:str
    reason?:str resize?:str resourceClaimStatuses?:[any]~name resources:ResourceRequirements startTime:time
PodCondition = lastProbeTime:time lastTransitionTime:time message?:str observedGeneration?:int64 reason?:str
    status:str type:str
ContainerStatus = allocatedResources?:{quantity} allocatedResourcesStatus?:[any]~name containerID?:str image:str
    imageID:str lastState:ContainerState name:str ready:bool resources:ResourceRequirements restartCount:int32
    started:bool state:ContainerState stopSignal:str user:any volumeMounts?:[any]~mountPath
ContainerState = running:ContainerStateRunning terminated:ContainerStateTerminated waiting:ContainerStateWaiting
ContainerStateRunning = startedAt:time
ContainerStateTerminated = containerID?:str exitCode:int32 finishedAt:time message?:str reason?:str signal?:int32
    startedAt:time
ContainerStateWaiting = message?:str reason?:str
HostIP = ip:str
PodIP = ip:str
Service = apiVersion:str kind:str metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceSpec = allocateLoadBalancerNodePorts:bool clusterIP?:str clusterIPs?:[str] externalIPs?:[str]
    externalName?:str externalTrafficPolicy?:str healthCheckNodePort?:int32 internalTrafficPolicy:str
    ipFamilies?:[str] ipFamilyPolicy:str loadBalancerClass:str loadBalancerIP?:str loadBalancerSourceRanges?:[str]
    ports?:[ServicePort]~port publishNotReadyAddresses?:bool selector?:{str} sessionAffinity?:str
    sessionAffinityConfig:SessionAffinityConfig trafficDistribution:str type?:str
ServicePort = appProtocol:str name?:str nodePort?:int32 port:int32 protocol?:str targetPort:int-or-str
SessionAffinityConfig = clientIP:ClientIPConfig
ClientIPConfig = timeoutSeconds:int32
ServiceStatus = conditions?:[Condition]~type loadBalancer:LoadBalancerStatus
Condition = lastTransitionTime:time message:str observedGeneration?:int64 reason:str status:str type:str
LoadBalancerStatus = ingress?:[LoadBalancerIngress]
LoadBalancerIngress = hostname?:str ip?:str ipMode:str ports?:[PortStatus]
PortStatus = error:str port:int32 protocol:str
ConfigMap = apiVersion:str binaryData?:{bytes} data?:{str} immutable:bool kind:str metadata:ObjectMeta
Secret = apiVersion:str data?:{bytes} immutable:bool kind:str metadata:ObjectMeta stringData?:{str} type?:str
Namespace = apiVersion:str kind:str metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
NamespaceSpec = finalizers?:[str]
NamespaceStatus = conditions?:[NamespaceCondition]~type phase?:str
NamespaceCondition = lastTransitionTime:time message?:str reason?:str status:str type:str
Node = apiVersion:str kind:str metadata:ObjectMeta spec:NodeSpec status:NodeStatus
NodeSpec = configSource:any externalID?:str podCIDR?:str podCIDRs?:[str]~ providerID?:str taints?:[Taint]
    unschedulable?:bool
Taint = effect:str key:str timeAdded:time value?:str
NodeStatus = addresses?:[NodeAddress]~type allocatable?:{quantity} capacity?:{quantity}
    conditions?:[NodeCondition]~type config:any daemonEndpoints:NodeDaemonEndpoints declaredFeatures?:[str]
    features:any images?:[ContainerImage] nodeInfo:NodeSystemInfo phase?:str runtimeHandlers?:[any]
    volumesAttached?:[AttachedVolume] volumesInUse?:[str]
NodeAddress = address:str type:str
NodeCondition = lastHeartbeatTime:time lastTransitionTime:time message?:str reason?:str status:str type:str
NodeDaemonEndpoints = kubeletEndpoint:DaemonEndpoint
DaemonEndpoint = Port:int32
ContainerImage = names:[str] sizeBytes?:int64
NodeSystemInfo = architecture:str bootID:str containerRuntimeVersion:str kernelVersion:str kubeProxyVersion:str
    kubeletVersion:str machineID:str operatingSystem:str osImage:str swap:NodeSwapStatus systemUUID:str
NodeSwapStatus = capacity:int64
AttachedVolume = devicePath:str name:str
Event = action?:str apiVersion:str count?:int32 eventTime:microtime firstTimestamp:time
    involvedObject:ObjectReference kind:str lastTimestamp:time message?:str metadata:ObjectMeta reason?:str
    related:ObjectReference reportingComponent:str reportingInstance:str series:EventSeries source:EventSource
    type?:str
ObjectReference = apiVersion?:str fieldPath?:str kind?:str name?:str namespace?:str resourceVersion?:str uid?:str
EventSeries = count?:int32 lastObservedTime:microtime
EventSource = component?:str host?:str
ServiceAccount = apiVersion:str automountServiceAccountToken:bool imagePullSecrets?:[LocalObjectReference] kind:str
    metadata:ObjectMeta secrets?:[ObjectReference]~name
Job = apiVersion:str kind:str metadata:ObjectMeta spec:JobSpec status:JobStatus
JobSpec = activeDeadlineSeconds:int64 backoffLimit:int32 backoffLimitPerIndex:int32 completionMode:str
    completions:int32 managedBy:str manualSelector:bool maxFailedIndexes:int32 parallelism:int32
    podFailurePolicy:any podReplacementPolicy:str selector:LabelSelector successPolicy:any suspend:bool
    template:PodTemplateSpec ttlSecondsAfterFinished:int32
PodTemplateSpec = metadata:ObjectMeta spec:PodSpec
JobStatus = active?:int32 completedIndexes?:str completionTime:time conditions?:[JobCondition]~type failed?:int32
    failedIndexes:str ready:int32 startTime:time succeeded?:int32 terminating:int32
    uncountedTerminatedPods:UncountedTerminatedPods
JobCondition = lastProbeTime:time lastTransitionTime:time message?:str reason?:str status:str type:str
UncountedTerminatedPods = failed?:[str]~ succeeded?:[str]~
Lease = apiVersion:str kind:str metadata:ObjectMeta spec:LeaseSpec
LeaseSpec = acquireTime:microtime holderIdentity:str leaseDurationSeconds:int32 leaseTransitions:int32
    preferredHolder:str renewTime:microtime strategy:str
SelfSubjectAccessReview = apiVersion:str kind:str metadata:ObjectMeta spec:SelfSubjectAccessReviewSpec status:any
SelfSubjectAccessReviewSpec = nonResourceAttributes:NonResourceAttributes resourceAttributes:ResourceAttributes
NonResourceAttributes = path?:str verb?:str
ResourceAttributes = fieldSelector:any group?:str labelSelector:any name?:str namespace?:str resource?:str
    subresource?:str verb?:str version?:str
SelfSubjectRulesReview = apiVersion:str kind:str metadata:ObjectMeta spec:SelfSubjectRulesReviewSpec status:any
SelfSubjectRulesReviewSpec = namespace?:str
SelfSubjectReview = apiVersion:str kind:str metadata:ObjectMeta status:any
TokenReview = apiVersion:str kind:str metadata:ObjectMeta spec:TokenReviewSpec status:any
TokenReviewSpec = audiences?:[str] token?:str
"""
# One type in a paragraph: its fields with their types; [x] is a list, {x} a map from strings. A field with ? is left
# out when it is empty; ~key says that a strategic merge patch merges the list by key, ~ alone that it is a set.


_MACHINE = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_NODE_INFO = dict.fromkeys(_MACHINE, "")
_NODE_STATUS: dict[str, Any] = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": _NODE_INFO}
# What Go writes also when it was never said.
_ZEROS: dict[str, dict[str, Any]] = {
    "Container": {"resources": {}},
    "ContainerStatus": {
        "state": {},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    },
    "ContainerStateRunning": {"startedAt": None},
    "ContainerStateTerminated": {"exitCode": 0, "startedAt": None, "finishedAt": None},
    "DaemonEndpoint": {"Port": 0},
    "Event": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "Job": {"spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}},
    "JobCondition": {"type": "", "status": "", "lastProbeTime": None, "lastTransitionTime": None},
    "JobSpec": {"template": {"metadata": {}, "spec": {}}},
    "Lease": {"spec": {}},
    "NamespaceCondition": {"lastTransitionTime": None},
    "Node": {"spec": {}, "status": _NODE_STATUS},
    "NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "NodeStatus": _NODE_STATUS,
    "NodeSystemInfo": _NODE_INFO,
    "PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "PodTemplateSpec": {"metadata": {}, "spec": {}},
}


class Field(NamedTuple):
    """``container`` is "list", "map" or ""; ``type`` a word below, or a type of the table."""

    type: str
    container: str = ""
    is_omitted: bool = False
    merge_key: str | None = None


class WrongType(Exception):
    """A value that Go's decoder would not take; the message is the decoder's own. ``wanted`` is Go's type; like the
    path of the value it is empty where the decoder does not say it."""

    def __init__(self, message: str, *, path: str = "", wanted: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.path, self.wanted, self.value = path, wanted, value


_FIELD = re.compile(r"(?P<name>\w+)(?P<omitted>\?)?:(?P<open>[\[{])?(?P<type>[\w-]+)[\]}]?(?P<merge>~(?P<key>\w*))?")
_INDEX = re.compile(r"\[[0-9]+\]")
_GO = {
    "str": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "bytes": "[]uint8",
}


@cache
def types() -> dict[str, dict[str, Field]]:
    """Every type of the table with its fields."""
    found: dict[str, dict[str, Field]] = {}
    for entry in re.sub(r"\n\s+", " ", _TABLE.strip()).splitlines():
        name, _, fields = entry.partition(" = ")
        found[name] = {match["name"]: _field(match) for match in _FIELD.finditer(fields)}
    return found


def _field(match: re.Match[str]) -> Field:
    container = {"[": "list", "{": "map", None: ""}[match["open"]]
    return Field(match["type"], container, bool(match["omitted"]), match["key"] if match["merge"] else None)


def read(kind: str, obj: dict[str, Any]) -> list[str]:
    """Bring an object into the form that the API server stores; answers the paths of unknown fields.

    Raises WrongType. A kind that has no table stays as it is.
    """
    unknown: list[str] = []
    if kind in types():
        _read_struct(obj, kind, "", unknown)
    return sorted(unknown)


def _read_struct(value: dict[str, Any], type_: str, path: str, unknown: list[str]) -> None:
    fields = types()[type_]
    for name in list(value):
        where = f"{path}.{name}" if path else name
        field = fields.get(name)
        if field is None:
            unknown.append(where)
            del value[name]
            continue
        kept = _read_field(value[name], field, _Place(type_, where), unknown)
        if kept is None or (field.is_omitted and not kept):
            del value[name]
        else:
            value[name] = kept
    for name, zero in _ZEROS.get(type_, {}).items():
        value.setdefault(name, copy.deepcopy(zero))


class _Place(NamedTuple):
    """Where a value stands: the Go type around it, and its path."""

    around: str
    path: str

    def refusal(self, value: Any, wanted: str) -> WrongType:
        field = f"{self.around}.{_INDEX.sub('', self.path)}"
        message = f"json: cannot unmarshal {_json_type(value)} into Go struct field {field} of type {wanted}"
        return WrongType(message, path=self.path, wanted=wanted, value=value)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "number"
    if isinstance(value, float):
        return f"number {value!r}"
    words: dict[Any, str] = {str: "string", list: "array", dict: "object"}
    return words.get(type(value), "null")


def _go(field: Field) -> str:
    word = _GO.get(field.type, f"v1.{field.type}")
    return {"list": f"[]{word}", "map": f"map[string]{word}", "": word}[field.container]


def _read_field(value: Any, field: Field, place: _Place, unknown: list[str]) -> Any:
    if value is None:
        return None
    item = Field(field.type)
    if field.container == "list":
        if not isinstance(value, list):
            raise place.refusal(value, _go(field))
        return [_read_item(each, item, place, f"[{index}]", unknown) for index, each in enumerate(value)]
    if field.container == "map":
        if not isinstance(value, dict):
            raise place.refusal(value, _go(field))
        return {key: _read_item(each, item, place, f".{key}", unknown) for key, each in value.items()}
    return _read_value(value, field.type, place, unknown)


def _read_item(value: Any, field: Field, place: _Place, step: str, unknown: list[str]) -> Any:
    if value is None:
        # Go's zero value stands in for a null inside of a list or a map.
        return {"str": "", "bytes": "", "bool": False, "any": None}.get(field.type, {} if field.type in types() else 0)
    path = place.path if step.startswith(".") else place.path + step
    return _read_value(value, field.type, _Place(place.around, path), unknown)


def _read_value(value: Any, type_: str, place: _Place, unknown: list[str]) -> Any:
    if type_ in types():
        if not isinstance(value, dict):
            raise place.refusal(value, f"v1.{type_}")
        _read_struct(value, type_, place.path, unknown)
        return value
    return _read_scalar(value, type_, place)


def _read_scalar(value: Any, type_: str, place: _Place) -> Any:
    match type_:
        case "quantity":
            return _quantity(value)
        case "str" | "bytes" if not isinstance(value, str):
            raise place.refusal(value, _GO[type_])
        case "bool" if not isinstance(value, bool):
            raise place.refusal(value, "bool")
        case "int32" | "int64":
            return _integer(value, type_, place)
        case "int-or-str" if isinstance(value, bool) or not isinstance(value, int | str):
            raise place.refusal(value, "intstr.IntOrString")
        case "time" | "microtime":
            return _time(value, type_, place)
        case "bytes":
            _check_base64(value)
    return value


_TIMES = {
    "time": (re.compile(r"[^T]+T[0-9:]+(\.[0-9]+)?(Z|[+-][0-9:]+)"), "2006-01-02T15:04:05Z07:00"),
    "microtime": (re.compile(r"[^T]+T[0-9:]+\.[0-9]+(Z|[+-][0-9:]+)"), "2006-01-02T15:04:05.000000Z07:00"),
}


def _time(value: Any, type_: str, place: _Place) -> str:
    if not isinstance(value, str):
        raise place.refusal(value, "string")
    pattern, layout = _TIMES[type_]
    try:
        moment = datetime.fromisoformat(value) if pattern.fullmatch(value) else None
    except ValueError:
        moment = None
    if moment is None:
        raise WrongType(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    spec = "microseconds" if type_ == "microtime" else "seconds"
    return moment.astimezone(UTC).isoformat(timespec=spec).replace("+00:00", "Z")


def _check_base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        good = re.match(r"[A-Za-z0-9+/]*", text)
        raise WrongType(f"illegal base64 data at input byte {good.end() if good else 0}") from None


def _integer(value: Any, type_: str, place: _Place) -> int:
    limit = 2**31 if type_ == "int32" else 2**63
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise place.refusal(value, type_)
    if value != int(value) or not -limit <= value < limit:
        raise WrongType(str(place.refusal(0, type_)).replace("number", f"number {value!r}", 1))
    return int(value)


def _quantity(value: Any) -> str:
    try:
        return canonical(value)
    except BadQuantity as error:
        raise WrongType(str(error)) from error


def merge_field(kind: str, path: tuple[str, ...]) -> Field | None:
    """The field at a path of a kind, through lists and maps; None where the table ends."""
    type_ = kind
    field: Field | None = None
    for name in path:
        field = types().get(type_, {}).get(name)
        if field is None:
            return None
        type_ = field.type
    return field


def reachable(kind: str) -> Iterator[str]:
    """A type and all types that its fields have, each once."""
    seen: set[str] = set()
    waiting = [kind]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in types():
            continue
        seen.add(name)
        waiting.extend(field.type for field in types()[name].values())
        yield name
