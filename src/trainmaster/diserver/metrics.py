"""What di-server measures."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

REQUESTS = Counter(
    "trainmaster_di_requests_total", "Requests by what became of them", ["method", "route", "code", "success"]
)
SECONDS = Histogram(
    "trainmaster_di_request_duration_seconds", "How long an answer took", ["method", "route"], buckets=_SECONDS
)
IN_FLIGHT = Gauge("trainmaster_di_requests_in_flight", "Requests that are being answered")
CONFLICTS = Counter("trainmaster_di_conflicts_total", "Declarations that somebody else was faster to change")
RETRIES = Counter("trainmaster_di_recognised_retries_total", "Requests that came again because their answer got lost")
DECLARED = Counter("trainmaster_di_declared_replicas_total", "Replicas by what was asked for", ["verb"])
