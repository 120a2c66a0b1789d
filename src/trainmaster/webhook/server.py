"""``POST /mutate-…`` and ``POST /validate-…`` over TLS: what the API server asks before it stores a job.

Whatever is asked, there is an answer and nothing is held: bodies and times are bounded, a bad request gets a sentence,
and a defect of ours costs one review, which the API server then does without (see docs/decisions/0016). It also does
without a review that is answered with 400, so a job that we cannot read is answered with 200 and refused.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from trainmaster import body
from trainmaster.body import BodyBudget
from trainmaster.http_server import serve_http
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.webhook import metrics, review
from trainmaster.webhook.path import Phase, path_of
from trainmaster.webhook.review import BadReview, Review
from trainmaster.webhook.verdict import mutation, verdict

log = structlog.get_logger(__name__)

LARGEST = (3 * 1024 + 64) * 1024
"""Bytes of a review. etcd stores objects of 1.5 MiB, and an update holds two of them. A larger review is answered with
400, after which the API server would store the job; but etcd does not."""
IN_FLIGHT = 2 * LARGEST
"""Bytes of all reviews that are read at once. Most have some kilobytes."""
BODY_PATIENCE = 1.0
BODY_TIMEOUT = 3.0
"""Seconds that a review waits for the others, and in which it must arrive. An API server waits five."""
CONNECTIONS = 48
"""Each takes 0.4 MB, most of it for TLS."""
KEEP_ALIVE = 100.0
"""Seconds. API servers close their idle connections after 90 s. A review that is sent while its connection is being
closed is lost, and the job is stored without it."""
END_TIMEOUT = 2.0
"""Seconds for open requests at shutdown; ``is_leaving`` has closed most connections before."""

_PHASES: tuple[Phase, ...] = ("mutate", "validate")
_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class _Reviewer:
    """One phase of one resource, in all of its versions."""

    def __init__(self, phase: Phase, kinds: ResourceKinds, bodies: BodyBudget, is_leaving: Callable[[], bool]) -> None:
        self._phase = phase
        self._bodies = bodies
        self._kinds = kinds
        self._is_leaving = is_leaving
        self._name = kinds.name
        self._seconds = metrics.SECONDS.labels(phase, self._name)

    async def answer(self, request: web.Request) -> web.Response:
        started = time.perf_counter()
        operation, result = "unknown", "bad"
        try:
            asked = review.read(await _body(request, self._bodies), self._kinds.resources)
            operation = asked.request.operation if asked.request.operation in _OPERATIONS else "unknown"
            is_allowed, answer = self._judge(asked)
            result = "allowed" if is_allowed else "refused"
            response = web.Response(body=answer, content_type="application/json")
        except BadReview as bad:
            log.warning("bad review", path=request.path, because=str(bad))
            response = web.Response(status=400, text=f"{bad}\n")
        except body.NoRoom:
            result = "busy"
            log.warning("too many reviews at once: one was not done", path=request.path)
            response = web.Response(status=503, text="too many reviews at once\n", headers={"Retry-After": "1"})
        except Exception:
            result = "failed"
            log.exception("defect in trainmaster: review failed; the job is stored unreviewed", path=request.path)
            response = web.Response(status=500, text="the review failed; see the log of the webhook\n")
        if self._is_leaving():
            response.force_close()  # the next review goes to another replica
        metrics.REQUESTS.labels(self._phase, self._name, operation, result).inc()
        self._seconds.observe(time.perf_counter() - started)
        return response

    def _judge(self, asked: Review) -> tuple[bool, bytes]:
        kind = self._kinds.of(asked.request.object)
        if self._phase == "mutate":
            return True, review.allowed(asked, patch=mutation(kind, asked.request))
        found = verdict(kind, asked.request)
        if not found.errors:
            return True, review.allowed(asked, warnings=found.warnings)
        job = f"{asked.request.namespace}/{asked.request.name}"
        log.info("job refused", kind=kind.resource.kind, job=job, because="; ".join(found.errors)[:1000])
        return False, review.refused(asked, found.errors, warnings=found.warnings)


async def _body(request: web.Request, bodies: BodyBudget) -> bytes:
    try:
        async with asyncio.timeout(BODY_PATIENCE + BODY_TIMEOUT):
            return await body.read(request, LARGEST, bodies)
    except body.TooLarge:
        raise BadReview(f"the body is larger than {LARGEST} bytes") from None
    except TimeoutError:
        raise BadReview(f"the body did not arrive within {BODY_TIMEOUT:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadReview("the body cannot be read to its end") from error


@asynccontextmanager
async def serve_admission(
    address: str, kinds: Sequence[ResourceKinds], tls: ssl.SSLContext, is_leaving: Callable[[], bool] = lambda: False
) -> AsyncIterator[int]:
    """Serve while the block runs; answers the port. ``is_leaving``: responses ask clients to reconnect elsewhere."""
    app, bodies = web.Application(), BodyBudget(IN_FLIGHT, patience=BODY_PATIENCE)
    app.add_routes(
        web.post(path_of(phase, resource), reviewer.answer)
        for each in kinds
        for phase in _PHASES
        for reviewer in (_Reviewer(phase, each, bodies, is_leaving),)
        for resource in each.resources
    )
    async with serve_http(
        app, address, connections=CONNECTIONS, tls=tls, keep_alive=KEEP_ALIVE, shutdown_timeout=END_TIMEOUT
    ) as port:
        yield port
