"""Which resources are served: the built-in ones, and those of the CustomResourceDefinitions in the store."""

from collections.abc import Iterable
from typing import Any

from trainmaster.core.ids import CONFIG_MAP, EVENT, JOB, LEASE, NAMESPACE, NODE, POD, SERVICE, Resource
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.schema.schema import Structural
from trainmaster.local.apiserver.store.store import Change, Store

SECRET = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
RULES_REVIEW = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview")
SELF_REVIEW = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
REVIEWS = (ACCESS_REVIEW, RULES_REVIEW, SELF_REVIEW, TOKEN_REVIEW)
DEFINITION = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

METRICS_GROUP = "metrics.k8s.io"
METRICS = (
    Served(Resource(METRICS_GROUP, "v1beta1", "nodes", "NodeMetrics"), "", namespaced=False, verbs=("get", "list")),
    Served(Resource(METRICS_GROUP, "v1beta1", "pods", "PodMetrics"), "", verbs=("get", "list")),
)
"""What the metrics server adds to a cluster."""

BUILT_IN = (
    Served(
        POD,
        "pod",
        short_names=("po",),
        categories=("all",),
        subresources=frozenset({"status", "log", "binding", "exec", "portforward"}),
    ),
    Served(SERVICE, "service", short_names=("svc",), categories=("all",), subresources=frozenset({"status"})),
    Served(EVENT, "event", short_names=("ev",)),
    Served(CONFIG_MAP, "configmap", short_names=("cm",)),
    Served(SECRET, "secret"),
    Served(SERVICE_ACCOUNT, "serviceaccount", short_names=("sa",)),
    Served(NODE, "node", namespaced=False, short_names=("no",), subresources=frozenset({"status"})),
    Served(
        NAMESPACE,
        "namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=frozenset({"status", "finalize"}),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Served(LEASE, "lease"),
    Served(JOB, "job", categories=("all",), subresources=frozenset({"status"})),
    Served(
        DEFINITION,
        "customresourcedefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=frozenset({"status"}),
    ),
    *(Served(each, each.kind.lower(), namespaced=False, verbs=("create",)) for each in REVIEWS),
)


class Catalog:
    """Follows the store: a definition that is written is served with the next request."""

    def __init__(self, store: Store) -> None:
        self._definitions: dict[str, tuple[Served, ...]] = {}
        self._structurals: dict[Resource, Structural] = {}
        for stored in store.select(str(DEFINITION)):
            self._definitions[stored.place.name] = tuple(served_of(stored.decode()))
        self._index()
        store.listen(self._observe)

    @property
    def served(self) -> tuple[Served, ...]:
        return self._served

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Served | None:
        return self._by_kind.get((api_version, kind))

    def of_resource(self, resource: str) -> Served | None:
        """Any version of what is stored as plural.group."""
        return self._by_resource.get(resource)

    def structural(self, served: Served) -> Structural:
        found = self._structurals.get(served.resource)
        if found is None:
            definition = served.definition or {}
            schema = (definition.get("schema") or {}).get("openAPIV3Schema") or {}
            found = self._structurals[served.resource] = Structural(schema)
        return found

    def _observe(self, change: Change) -> None:
        if change.place.resource != str(DEFINITION):
            return
        if change.after is None:
            self._definitions.pop(change.place.name, None)
        else:
            self._definitions[change.place.name] = tuple(served_of(change.after.decode()))
        self._index()

    def _index(self) -> None:
        self._structurals.clear()
        self._served = BUILT_IN + METRICS + tuple(each for versions in self._definitions.values() for each in versions)
        self._by_path = {
            (each.resource.group, each.resource.version, each.resource.plural): each for each in self._served
        }
        self._by_kind = {(each.resource.api_version, each.resource.kind): each for each in self._served}
        self._by_resource = {str(each.resource): each for each in self._served}


def served_of(definition: dict[str, Any]) -> Iterable[Served]:
    """The served versions of a valid CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if version["served"]:
            yield Served(
                Resource(spec["group"], version["name"], names["plural"], names["kind"]),
                names.get("singular") or names["kind"].lower(),
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=frozenset(version.get("subresources") or {}),
                definition=version,
            )
