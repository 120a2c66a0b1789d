from prometheus_client import REGISTRY

from trainmaster.runtime.metrics import RequestMetrics


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_are_counted_by_method_and_code_and_measured_by_method() -> None:
    metrics = RequestMetrics()
    for code, seconds in (("200", 0.5), ("200", 0.25), ("<error>", 1.0)):
        metrics.observe("TEST", code, seconds)

    assert value("rest_client_requests_total", method="TEST", code="200") == 2
    assert value("rest_client_requests_total", method="TEST", code="<error>") == 1
    assert value("rest_client_request_duration_seconds_count", verb="TEST") == 3
    assert value("rest_client_request_duration_seconds_sum", verb="TEST") == 1.75
