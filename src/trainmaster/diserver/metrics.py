"""Metrics of di-server."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

REQUESTS = Counter(
    "trainmaster_di_requests_total",
    "Requests by method, route and result",
    ["method", "route", "code", "success"],
)
SECONDS = Histogram(
    "trainmaster_di_request_duration_seconds", "Duration of requests", ["method", "route"], buckets=_SECONDS
)
IN_FLIGHT = Gauge("trainmaster_di_requests_in_flight", "Requests in flight")
CONFLICTS = Counter("trainmaster_di_conflicts_total", "Conflicts when writing declarations")
RETRIES = Counter("trainmaster_di_recognised_retries_total", "Repeated requests whose first answer was lost")
DECLARED = Counter("trainmaster_di_declared_replicas_total", "Replicas of stored requests, by verb", ["verb"])
CERTIFICATE_END = Gauge("trainmaster_di_certificate_end_seconds", "When the served certificate ends, Unix time")
