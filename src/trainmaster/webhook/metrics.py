"""What the webhook measures."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "trainmaster_admission_requests_total",
    "Reviews by what came of them: allowed, refused, bad (no review of ours), busy or failed (a defect)",
    ["phase", "kind", "operation", "result"],
)
SECONDS = Histogram(
    "trainmaster_admission_seconds",
    "How long a review took",
    ["phase", "kind"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
CERTIFICATE_END = Gauge("trainmaster_admission_certificate_end_seconds", "When the served certificate ends, Unix time")
