"""Routes HTTP requests to verbs: which method of which path calls what, and the form of the answer."""

import asyncio
import hmac
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
import structlog
from aiohttp import web

from trainmaster.core.ids import NODE, POD, Resource
from trainmaster.local.apiserver.controllers import schedule
from trainmaster.local.apiserver.http import answer
from trainmaster.local.apiserver.http.negotiate import JSON, Form, form_of
from trainmaster.local.apiserver.http.option import list_options
from trainmaster.local.apiserver.http.path import Address, address_of
from trainmaster.local.apiserver.http.status import (
    INSTEAD,
    UNSUPPORTED_SUBRESOURCES,
    UNSUPPORTED_WORKLOADS,
    Refusal,
    bad_request,
    details_of,
    internal,
    invalid_options,
    method_unknown,
    no_such_path,
    no_such_workload,
    not_found,
    not_supported,
    success,
    too_large,
    unauthorized,
    unavailable,
    unsupported_media_type,
)
from trainmaster.local.apiserver.kubectl import discovery, metrics, protobuf
from trainmaster.local.apiserver.kubectl.exec import pod_exec
from trainmaster.local.apiserver.kubectl.log import pod_log
from trainmaster.local.apiserver.kubectl.port_forward import port_forward
from trainmaster.local.apiserver.objects import apply, field_error, patch, read, review, scale, strategic, write
from trainmaster.local.apiserver.objects.catalog import BUILT_IN, METRICS_GROUP, REVIEWS
from trainmaster.local.apiserver.objects.delete import Deleted, delete, delete_options
from trainmaster.local.apiserver.objects.field_error import quoted
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.store.store import Place, Stored, StoreFailed
from trainmaster.local.apiserver.store.watch import Watch, WatchNotifier

LARGEST_BODY = 3 * 1024 * 1024

_MERGE = "application/merge-patch+json"
_OPERATIONS = "application/json-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_HEALTH = frozenset({"/healthz", "/readyz", "/livez"})
_INCLUDES = ("", "None", "Metadata", "Object")
# Seconds after which a watch is closed whose client reads nothing.
_SLOWEST_READER = 30.0

Object = dict[str, Any]
ServeAtNode = Callable[[web.Request, Object, Object | None, aiohttp.ClientSession, str], Awaitable[web.StreamResponse]]

_METRICS: dict[str, tuple[metrics.MakeMetrics, Resource]] = {
    "NodeMetrics": (metrics.of_nodes, NODE),
    "PodMetrics": (metrics.of_pods, POD),
}

log = structlog.get_logger()


class Api:
    """The HTTP API, for one user with one token."""

    def __init__(
        self, state: State, notifier: WatchNotifier, *, token: str, node_token: str, session: aiohttp.ClientSession
    ) -> None:
        self._state = state
        self._notifier = notifier
        self._token = token
        self._node_token = node_token
        self._session = session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one request; every error becomes a Status object."""
        try:
            self._authenticate(request)
            return await self._route(request)
        except Refusal as refusal:
            return _refused(refusal)
        except StoreFailed as error:
            return _refused(unavailable(str(error)))
        except web.HTTPRequestEntityTooLarge:
            return _refused(too_large())
        except (
            web.HTTPException,
            aiohttp.ClientPayloadError,
            aiohttp.http.HttpProcessingError,
            web.RequestPayloadError,
            RecursionError,
        ) as error:
            return _refused(bad_request(f"the request cannot be read: {type(error).__name__}"))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception(
                "request failed: a defect in trainmaster", method=request.method, path=request.rel_url.raw_path
            )
            return _refused(internal("a defect of the local cluster; its log says more"))

    def _authenticate(self, request: web.Request) -> None:
        header = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(header, f"Bearer {self._token}".encode()):
            raise unauthorized()
        if any(name.lower().startswith("impersonate-") for name in request.headers):
            raise not_supported("impersonation (kubectl --as)")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        address = address_of(path)
        if address is None:
            return self._other(request, path)
        if request.method == "POST" and (address.group, address.plural) in UNSUPPORTED_WORKLOADS:
            raise no_such_workload(address.group, address.plural)
        target = self._target(address)
        if target is None:
            return _text(404, "404 page not found\n")
        if target.served.resource in REVIEWS:
            return await self._review(request, target)
        if target.served.resource.group == METRICS_GROUP:
            return await self._metrics(request, target)
        if target.subresource:
            return await self._subresource(request, target)
        if target.name:
            return await self._item(request, target)
        return await self._collection(request, target)

    def _other(self, request: web.Request, path: str) -> web.Response:
        if path.rstrip("/") in _HEALTH and request.method == "GET":
            return _text(200, "ok")
        if request.method != "GET":
            return _text(404, "404 page not found\n")
        answer = discovery.answer(path, request.headers.get("Accept", ""), self._state.catalog.served)
        if answer is None:
            return _text(404, "404 page not found\n")
        code, content_type, body = answer
        return web.Response(status=code, body=body, headers={"Content-Type": content_type})

    def _target(self, address: Address) -> Target | None:
        """None if nothing of the group and version is served."""
        served = self._state.catalog.find(address.group, address.version, address.plural)
        if served is None:
            if not address.group or any(
                (each.resource.group, each.resource.version) == address[:2] for each in BUILT_IN
            ):
                raise no_such_path()
            return None
        if address.namespace and not served.namespaced:
            raise no_such_path()
        if address.name and served.namespaced and not address.namespace:
            raise no_such_path()
        return Target(served, address.namespace, address.name, address.subresource)

    # -- verbs ---------------------------------------------------------------------------------------------

    async def _collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        has_place = bool(target.namespace) or not target.served.namespaced
        if request.method == "GET":
            return await self._list(request, target)
        if request.method == "POST" and has_place:
            form = _form(request)
            options = write.write_options("CreateOptions", request.query)
            body = await _body(request, target)
            return self._written(request, target, write.create(self._state, target, body, options), form)
        if request.method == "DELETE" and has_place and "deletecollection" in target.served.verbs:
            return await self._delete_collection(request, target)
        raise method_unknown()

    async def _item(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET":
                form = _form(request)
                stored = read.get(self._state, target, request.query.get("resourceVersion", ""))
                return self._one(request, target, stored, form)
            case "PUT":
                form = _form(request)
                options = write.write_options("UpdateOptions", request.query)
                body = await _body(request, target)
                return self._written(request, target, write.update(self._state, target, body, options), form)
            case "PATCH":
                return await self._patch(request, target)
            case "DELETE":
                _form(request)
                wanted = delete_options(await _optional_body(request), request.query)
                return self._deleted(target, delete(self._state, target, wanted))
            case _:
                raise method_unknown()

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        plural, name = target.served.resource.plural, target.subresource
        if target.served.definition is None and name in UNSUPPORTED_SUBRESOURCES.get(plural, ()):
            raise not_supported(f"{plural}/{name}", INSTEAD.get(name, ""))
        if name not in target.served.subresources:
            raise no_such_path() if target.served.definition is None else not_found(target.served.resource, target.name)
        match name, request.method:
            case ("log", "GET"):
                return await self._at_node(pod_log, request, target)
            case ("exec", "GET" | "POST"):
                return await self._at_node(pod_exec, request, target)
            case ("portforward", "GET" | "POST"):
                pod = answer.whole_object(target.served, read.get(self._state, target))
                return await port_forward(request, pod)
            case ("binding", "POST"):
                return await self._bind(request, target)
            case ("scale", "GET"):
                stored = read.get(self._state, target)
                return _json(scale.show(target.served, answer.whole_object(target.served, stored)))
            case ("scale", "PUT" | "PATCH"):
                return await self._rescale(request, target)
            case ("status", "GET" | "PUT" | "PATCH") | ("finalize", "PUT"):
                return await self._item(request, target)
            case _:
                raise method_unknown()

    async def _review(self, request: web.Request, target: Target) -> web.Response:
        if target.name:
            raise no_such_path()
        if request.method != "POST":
            raise method_unknown()
        _form(request)
        validation = write.write_options("CreateOptions", request.query).validation
        body = await _body(request, target)
        answered, warnings = review.answer(self._state, target.served, body, self._token, validation)
        return _warned(_json(answered, 201), warnings)

    async def _metrics(self, request: web.Request, target: Target) -> web.Response:
        """What the nodes or pods of a list use, or a single one."""
        if request.method != "GET" or target.subresource:
            raise method_unknown()
        _form(request)
        make, of = _METRICS[target.served.resource.kind]
        served = self._state.catalog.find(of.group, of.version, of.plural)
        assert served is not None  # noqa: S101 – built in
        about = Target(served, target.namespace, target.name)
        stored = [read.get(self._state, about)] if target.name else self._page(request, about)
        found = make([answer.whole_object(served, each) for each in stored], await self._summaries())
        if target.name:
            if not found:
                raise not_found(target.served.resource, target.name)
            return _json(found[0])
        resource = target.served.resource
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": {}}
        return _json({**head, "items": found})

    def _page(self, request: web.Request, target: Target) -> Sequence[Stored]:
        return read.list_page(self._state, target, list_options(request.query)).items

    async def _summaries(self) -> dict[str, Object]:
        """By node; one that does not answer has none."""
        served = self._state.catalog.of_resource(str(NODE))
        assert served is not None  # noqa: S101 – built in
        nodes = [answer.whole_object(served, each) for each in self._state.store.select(str(NODE))]
        asked = [metrics.summary_of(node, self._session, self._node_token) for node in nodes]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = zip(nodes, answers, strict=True)
        return {node["metadata"]["name"]: said for node, said in found if not isinstance(said, BaseException)}

    async def _list(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = list_options(request.query)
        form, include_object = _form(request), _include_object(request)
        if options.watch:
            watch = Watch(self._state, self._notifier, target, options, form, include_object)
            return await self._stream(request, watch)
        page = read.list_page(self._state, target, options)
        body = answer.many(target.served, page.items, page.metadata, form, include_object, self._state.now())
        return web.Response(body=body, content_type=JSON)

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        try:
            async for lines in watch.lines():
                if lines:
                    async with asyncio.timeout(_SLOWEST_READER):
                        await response.write(lines)
            async with asyncio.timeout(_SLOWEST_READER):
                await response.write_eof()
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        form = _form(request)
        options = write.write_options("PatchOptions", request.query)
        if request.content_type == _APPLY:
            outcome = apply.apply(self._state, target, await _applied(request), options)
            return self._written(request, target, outcome, form)
        change = await self._change(request, target)
        return self._written(request, target, write.patch(self._state, target, change, options), form)

    async def _rescale(self, request: web.Request, target: Target) -> web.Response:
        if request.method == "PUT":
            options = write.write_options("UpdateOptions", request.query)
            outcome = write.update(self._state, target, await _body(request, target), options)
        else:
            options = write.write_options("PatchOptions", request.query)
            outcome = write.patch(self._state, target, await self._change(request, target), options)
        return _warned(web.Response(body=outcome.stored.body, content_type=JSON), outcome.warnings)

    async def _change(self, request: web.Request, target: Target) -> Callable[[dict[str, Any]], Any]:
        """The function that applies the patch in the body. The object is looked up before the body is read."""
        content_type = request.content_type
        offered = [_OPERATIONS, _MERGE]
        if target.served.definition is None:
            offered.append(_STRATEGIC)
        if content_type not in offered and target.served.definition is None:
            raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        if content_type not in offered:
            raise unsupported_media_type(", ".join([*offered, _APPLY]))
        raw = await request.read()
        kind = target.served.resource.kind

        def change(obj: dict[str, Any]) -> Any:
            body = _decoded(raw, "error decoding patch")
            if content_type == _OPERATIONS:
                return patch.apply_operations(obj, body)
            if not isinstance(body, dict):
                raise bad_request("error decoding patch: a patch of this type is an object")
            if content_type == _MERGE:
                return patch.merge(obj, body)
            try:
                return strategic.merge(obj, body, kind)
            except strategic.BadPatch as error:
                raise bad_request(str(error)) from None

        return change

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        options = delete_options(await _optional_body(request), request.query)
        page = read.list_page(self._state, target, list_options(request.query))
        for stored in page.items:
            try:
                delete(self._state, target.named(stored.place.name), options)
            except Refusal as refusal:
                if refusal.code != 404:
                    raise
        body = answer.many(target.served, page.items, page.metadata, Form(), "", self._state.now())
        return web.Response(body=body, content_type=JSON)

    async def _bind(self, request: web.Request, target: Target) -> web.Response:
        body = await _body(request, target)
        node = schedule.node_of_binding(body)
        schedule.bind(self._state, target.place, node, binding=body)
        return _json(success(code=201), 201)

    async def _at_node(self, serve: ServeAtNode, request: web.Request, target: Target) -> web.StreamResponse:
        """A request that the node of the pod answers."""
        pod = answer.whole_object(target.served, read.get(self._state, target))
        node = None
        name = (pod.get("spec") or {}).get("nodeName")
        served = self._state.catalog.of_resource(str(NODE))
        if name and served is not None:
            stored = self._state.store.get(Place(str(NODE), "", name))
            node = None if stored is None else answer.whole_object(served, stored)
        return await serve(request, pod, node, self._session, self._node_token)

    # -- answers -------------------------------------------------------------------------------------------

    def _one(self, request: web.Request, target: Target, stored: Stored, form: Form, code: int = 200) -> web.Response:
        body = answer.one(target.served, stored, form, _include_object(request), self._state.now())
        return web.Response(status=code, body=body, content_type=JSON)

    def _written(self, request: web.Request, target: Target, outcome: write.Outcome, form: Form) -> web.Response:
        return _warned(self._one(request, target, outcome.stored, form, outcome.code), outcome.warnings)

    def _deleted(self, target: Target, deleted: Deleted) -> web.Response:
        served, stored = target.served, deleted.stored
        if deleted.shows_object(served):
            return web.Response(body=answer.whole(served, stored), content_type=JSON)
        details = details_of(served.resource, target.name)
        return _json(success({**details, "uid": stored.decode()["metadata"]["uid"]}))


def _form(request: web.Request) -> Form:
    return form_of(",".join(request.headers.getall("Accept", [])))


def _include_object(request: web.Request) -> str:
    word = request.query.get("includeObject", "")
    if word not in _INCLUDES:
        why = f"includeObject: Invalid value: {quoted(word)}: must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return word


async def _body(request: web.Request, target: Target) -> Any:
    if request.content_type == protobuf.MEDIA_TYPE:
        try:
            return protobuf.decode(await request.read())
        except ValueError as error:
            raise Refusal(415, "UnsupportedMediaType", f"the body in protobuf cannot be read: {error}") from None
    if request.headers.get("Content-Type") and request.content_type != JSON:
        raise unsupported_media_type(JSON)
    kind = target.served.resource.kind
    return _decoded(await request.read(), f"the object provided is unrecognized (must be of type {kind})")


async def _applied(request: web.Request) -> Any:
    """The object of a server-side apply. kubectl and all client libraries send JSON, which is YAML, too."""
    if not request.query.get("fieldManager"):
        why = field_error.required("fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", [why])
    body = _decoded(await request.read(), "the object cannot be read; send it as JSON")
    if not isinstance(body, dict):
        raise bad_request("the object cannot be read: expected an object")
    return body


async def _optional_body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return None
    if request.content_type == protobuf.MEDIA_TYPE:
        raise not_supported(
            "kubectl drain", "end jobs with `trainmaster suspend JOB`, and pods with `kubectl delete pod`"
        )
    if request.headers.get("Content-Type") and request.content_type != JSON:
        raise unsupported_media_type(JSON)
    body = _decoded(raw, "the DeleteOptions cannot be read")
    if not isinstance(body, dict):
        raise bad_request("the DeleteOptions cannot be read: expected an object")
    return body


def _decoded(raw: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"{what}: json parse error: {error}") from None


def _json(body: dict[str, Any], code: int = 200) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body), content_type=JSON)


def _refused(refusal: Refusal) -> web.Response:
    response = _warned(_json(refusal.body, refusal.code), refusal.warnings)
    retry = (refusal.body.get("details") or {}).get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def _warned(response: web.Response, warnings: Sequence[str]) -> web.Response:
    """Drops warnings that are not valid header values, as kube-apiserver does."""
    for warning in warnings:
        if not any(unicodedata.category(char) == "Cc" for char in warning):
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
    return response


def _text(code: int, text: str) -> web.Response:
    return web.Response(status=code, text=text)
