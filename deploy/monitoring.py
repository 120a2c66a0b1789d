"""Generates deploy/monitoring/: what Prometheus scrapes, the alerts, and a dashboard for Grafana.

    python -m deploy.monitoring
    python -m deploy.monitoring https://git.example/trainmaster/docs/runbook    # prints the alerts, with runbook_url

Each alert has a page in docs/runbook/, with the name that ``Alert.page`` gives it. This project has no address: whoever
publishes the pages says where they are.

Most metrics have the names that other controllers have, too. So every query names our kinds in full, or a metric of
ours, or on the dashboard the scrape jobs that have such a metric.
"""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from deploy import PART_OF
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.runtime.elector import lease_name

Object = dict[str, Any]

FOLDER = Path(__file__).with_name("monitoring")


def _selector(label: str, values: Iterable[str]) -> str:
    """In PromQL a dot of a regular expression is written in brackets: a backslash needs a second one."""
    return f'{{{label}=~"{"|".join(sorted(value.replace(".", "[.]") for value in values))}"}}'


_KINDS = all_resource_kinds(Settings())
QUEUES = _selector("name", (kind.name for kind in _KINDS))
CONTROLLERS = _selector("controller", (kind.name for kind in _KINDS))
LEASES = _selector("name", (lease_name(kind.resource) for kind in _KINDS))
FRAMEWORKS = _selector("framework", (kind.framework for kind in _KINDS))
"""Kubeflow's training-operator counts its own jobs by the same names."""
SCRAPED = '{job=~"$job"}'
"""On the dashboard: of our own programs."""


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    severity: Literal["critical", "warning"]
    summary: str
    lasts: str = "10m"

    @property
    def page(self) -> str:
        """``TrainmasterNoLeader`` is ``no-leader.md``."""
        words = re.findall("[A-Z][a-z]*", self.name.removeprefix("Trainmaster"))
        return "-".join(words).lower() + ".md"

    def rule(self, runbooks: str) -> Object:
        """``runbooks`` is the address of the pages; empty if they have none."""
        url = {"runbook_url": f"{runbooks.rstrip('/')}/{self.page}"} if runbooks else {}
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": f"docs/runbook/{self.page}", **url},
        }


ALERTS = (
    Alert(
        "TrainmasterAbsent",
        "absent(trainmaster_slow_plans_total)",
        "critical",
        "no operator is scraped: jobs are not reconciled, or Prometheus does not reach the operator",
    ),
    Alert(
        "TrainmasterNoLeader",
        f"max by (name) (leader_election_master_status{LEASES}) == 0",
        "critical",
        "no operator holds the Lease {{ $labels.name }}: jobs of this kind are not reconciled",
        lasts="2m",
    ),
    Alert(
        "TrainmasterCacheBehind",
        "max by (resource) (trainmaster_cache_behind_seconds) > 60",
        "critical",
        "the cache of {{ $labels.resource }} is {{ $value | humanizeDuration }} behind the API server",
        lasts="2m",
    ),
    Alert(
        "TrainmasterDefinitionsOutdated",
        "sum by (kind) (rate(trainmaster_status_writes_refused_total[10m])) > 0",
        "critical",
        "the definition of {{ $labels.kind }} is older than the operator: statuses cannot be stored",
    ),
    Alert(
        "TrainmasterPassHangs",
        f"max by (name) (workqueue_longest_running_processor_seconds{QUEUES}) > 300",
        "warning",
        "a pass of {{ $labels.name }} has taken {{ $value | humanizeDuration }}",
    ),
    Alert(
        "TrainmasterJobsWait",
        f"histogram_quantile(0.99, sum by (le) (rate(workqueue_queue_duration_seconds_bucket{QUEUES}[10m]))) > 30",
        "warning",
        "jobs wait {{ $value | humanizeDuration }} for the operator",
    ),
    Alert(
        "TrainmasterPassesFail",
        f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{CONTROLLERS}[10m])) > 0.1",
        "warning",
        "passes of {{ $labels.controller }} fail",
    ),
    Alert(
        "TrainmasterJobsFail",
        f"sum by (job_namespace) (increase(training_operator_jobs_failed_total{FRAMEWORKS}[1h])) > 5",
        "warning",
        "{{ $value | humanize }} jobs of namespace {{ $labels.job_namespace }} failed within an hour",
    ),
    Alert(
        "TrainmasterJobsRestart",
        f"sum by (job_namespace) (increase(training_operator_jobs_restarted_total{FRAMEWORKS}[1h])) > 10",
        "warning",
        "jobs of namespace {{ $labels.job_namespace }} restarted {{ $value | humanize }} times within an hour",
    ),
    Alert(
        "TrainmasterJobsBlocked",
        "max by (kind, condition) (trainmaster_longest_wait_seconds) > 3600",
        "warning",
        "pods of a {{ $labels.kind }} have not started for {{ $value | humanizeDuration }}: {{ $labels.condition }}",
    ),
    Alert(
        "TrainmasterUnreadableObjects",
        "sum by (resource) (increase(trainmaster_unreadable_objects_total[1h])) > 0",
        "warning",
        "objects of {{ $labels.resource }} cannot be read and are left out",
        lasts="1m",
    ),
    Alert(
        "TrainmasterEventsDropped",
        'sum by (because) (increase(trainmaster_events_dropped_total{because!="shut down"}[1h])) > 0',
        "warning",
        "Events are not sent: {{ $labels.because }}",
        lasts="1m",
    ),
    Alert(
        "TrainmasterClockWrong",
        "max(abs(trainmaster_clock_ahead_seconds)) > 600",
        "warning",
        "the clock of an operator differs from the API server's by {{ $value | humanizeDuration }}",
    ),
    Alert(
        "TrainmasterServerErrors",
        'sum(rate(trainmaster_di_requests_total{code=~"5.."}[10m])) > 0.1',
        "warning",
        "di-server answers with errors: coordinators get no replicas",
    ),
    Alert(
        "TrainmasterWebhookFails",
        'sum by (result) (rate(trainmaster_admission_requests_total{result=~"failed|busy"}[10m])) > 0',
        "warning",
        "reviews of the webhook end as {{ $labels.result }}",
    ),
    Alert(
        "TrainmasterCertificateEnds",
        "min(trainmaster_admission_certificate_end_seconds) - time() < 3 * 86400",
        "warning",
        "the certificate of the webhook ends in {{ $value | humanizeDuration }} and was not renewed",
    ),
)


@dataclass(frozen=True)
class Panel:
    """``queries`` by the legend of their series."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    row: str = ""
    """Begins a row of this title."""


def _quantile(quantile: float, metric: str, by: str = "", selector: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{selector}[$__rate_interval])))"


def _rate(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{selector}[$__rate_interval]))"


_FAILED = f"training_operator_jobs_failed_total{FRAMEWORKS}"
PANELS = (
    Panel("Jobs by phase", {"{{kind}} {{phase}}": "sum by (kind, phase) (trainmaster_jobs) > 0"}, row="Jobs"),
    Panel(
        "Jobs per hour",
        {
            word: f"sum(increase(training_operator_jobs_{word}_total{FRAMEWORKS}[1h]))"
            for word in ("created", "successful", "failed", "restarted")
        },
    ),
    Panel(
        "Failed jobs per hour, by namespace",
        {"{{job_namespace}}": f"topk(10, sum by (job_namespace) (increase({_FAILED}[1h])))"},
    ),
    Panel(
        "Longest wait",
        {"{{kind}} {{condition}}": "max by (kind, condition) (trainmaster_longest_wait_seconds)"},
        unit="s",
    ),
    Panel("Leaders", {"{{name}}": f"sum by (name) (leader_election_master_status{LEASES})"}, row="Operator"),
    Panel("Caches behind", {"{{resource}}": "max by (resource) (trainmaster_cache_behind_seconds)"}, unit="s"),
    Panel("Jobs in the queue", {"{{name}}": f"sum by (name) (workqueue_depth{QUEUES})"}),
    Panel(
        "Time in the queue",
        {
            "p50": _quantile(0.5, "workqueue_queue_duration_seconds", selector=QUEUES),
            "p99": _quantile(0.99, "workqueue_queue_duration_seconds", selector=QUEUES),
        },
        unit="s",
    ),
    Panel(
        "Duration of a pass, p99",
        {"{{controller}}": _quantile(0.99, "controller_runtime_reconcile_time_seconds", "controller", CONTROLLERS)},
        unit="s",
    ),
    Panel(
        "Passes by result",
        {"{{result}}": _rate("controller_runtime_reconcile_total", "result", CONTROLLERS)},
        unit="ops",
    ),
    Panel("Writes", {"{{verb}} {{resource}}": _rate("trainmaster_actions_total", "verb, resource")}, unit="ops"),
    Panel(
        "Plans over 100 ms, passes that waited for own writes",
        {
            "slow plans": _rate("trainmaster_slow_plans_total", "kind"),
            "waits": _rate("trainmaster_barrier_waits_total", "kind"),
        },
        unit="ops",
    ),
    Panel("Memory", {"{{job}} {{instance}}": f"process_resident_memory_bytes{SCRAPED}"}, unit="bytes"),
    Panel("CPU", {"{{job}} {{instance}}": f"rate(process_cpu_seconds_total{SCRAPED}[$__rate_interval])"}),
    Panel(
        "Requests by code",
        {"{{code}}": _rate("rest_client_requests_total", "code", SCRAPED)},
        unit="ops",
        row="API server",
    ),
    Panel(
        "Duration of requests, p99",
        {"{{verb}}": _quantile(0.99, "rest_client_request_duration_seconds", "verb", SCRAPED)},
        "s",
    ),
    Panel(
        "di-server: requests by code", {"{{code}}": _rate("trainmaster_di_requests_total", "code")}, "ops", "Servers"
    ),
    Panel(
        "di-server: duration, p99",
        {"{{method}}": _quantile(0.99, "trainmaster_di_request_duration_seconds", "method")},
        "s",
    ),
    Panel("Webhook: reviews by result", {"{{result}}": _rate("trainmaster_admission_requests_total", "result")}, "ops"),
    Panel("Webhook: duration, p99", {"{{phase}}": _quantile(0.99, "trainmaster_admission_seconds", "phase")}, "s"),
)


def rules(runbooks: str = "") -> Object:
    """The rules alone, as a file of Prometheus has them."""
    return {"groups": [{"name": "trainmaster", "rules": [alert.rule(runbooks) for alert in ALERTS]}]}


def prometheus_rule(runbooks: str = "") -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "trainmaster", "labels": PART_OF},
        "spec": rules(runbooks),
    }


def service_monitor() -> Object:
    """For the Services of every installation: operator and webhook have a port ``metrics``, di-server has ``http``."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "trainmaster", "labels": PART_OF},
        "spec": {
            "selector": {"matchLabels": PART_OF},
            "namespaceSelector": {"any": True},
            "endpoints": [{"port": port, "path": "/metrics"} for port in ("metrics", "http")],
        },
    }


WIDTH, HEIGHT, COLUMNS = 8, 8, 24


def dashboard() -> Object:
    panels: list[Object] = []
    x = y = 0
    for panel in PANELS:
        if panel.row:
            y, x = y + (HEIGHT if x else 0), 0
            panels.append({"type": "row", "title": panel.row, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
            y += 1
        panels.append(_panel(panel, {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}))
        x += WIDTH
        if x == COLUMNS:
            x, y = 0, y + HEIGHT
    numbered = [{"id": number, **panel} for number, panel in enumerate(panels, start=1)]
    return {
        "uid": "trainmaster",
        "title": "trainmaster",
        "tags": ["trainmaster"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_DATA_SOURCE, _JOB]},
        "panels": numbered,
    }


_DATA_SOURCE: Object = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
_JOB: Object = {
    "name": "job",
    "label": "Scrape job",
    "type": "query",
    "datasource": {"type": "prometheus", "uid": "${datasource}"},
    "query": {"query": 'label_values({__name__=~"trainmaster_.+"}, job)', "refId": "job"},
    "includeAll": True,
    "multi": True,
    "refresh": 2,
}


def _panel(panel: Panel, where: Object) -> Object:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "gridPos": where,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": source, "expr": expression, "legendFormat": legend}
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def files() -> dict[Path, str]:
    """The generated text of each file."""
    head = "# Generated by `make generate`, see deploy/monitoring.py.\n"
    return {
        FOLDER / "prometheusrule.yaml": head + _to_yaml(prometheus_rule()),
        FOLDER / "servicemonitor.yaml": head + _to_yaml(service_monitor()),
        FOLDER / "dashboard.json": json.dumps(dashboard(), indent=2) + "\n",
    }


def _to_yaml(body: Object) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=1000)


def main(*runbooks: str) -> None:
    """Without an address it writes the files; with one it prints the alerts for that address."""
    if runbooks:
        [url] = runbooks
        print(_to_yaml(prometheus_rule(url)), end="")
        return
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
