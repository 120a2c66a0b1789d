"""deploy/monitoring/: alerts fire when they should, and every panel of the dashboard has data.

Both are checked with a real Prometheus; Debian's package ``prometheus`` has it and promtool.
"""

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from deploy import monitoring
from deploy.monitoring import ALERTS, PANELS
from testbed.admin import Admin
from testbed.operator import REPOSITORY
from testbed.plane import free_port
from testbed.process import Process, Watchdog
from tests.hostile.honest import run_jobs
from tests.hostile.installation import Installation, installation
from tests.matrix.kinds import BY_JOB

Object = dict[str, Any]

ROUNDS = 10
"""Of jobs of all kinds, until each query has data: a rate needs two scrapes, and some series a first event."""
RUNBOOK = REPOSITORY / "docs" / "runbook"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool are not in PATH; install them with: apt-get install prometheus",
)


@pytest.mark.parametrize("path", monitoring.files(), ids=lambda path: path.name)
def test_the_file_is_what_is_generated(path: Path) -> None:
    assert path.read_text() == monitoring.files()[path], f"deploy/monitoring/{path.name} is stale: run make generate"


def test_every_alert_has_a_page_of_the_runbook_and_every_page_an_alert() -> None:
    titles = {path.name: path.read_text().partition("\n")[0].removeprefix("# ") for path in RUNBOOK.glob("*.md")}

    assert titles == {alert.page: alert.name for alert in ALERTS}


def test_alerts_and_panels_ask_for_metrics_that_exist() -> None:
    modules = ("runtime/metrics.py", "diserver/metrics.py", "webhook/metrics.py")
    source = "".join((REPOSITORY / "src" / "trainmaster" / module).read_text() for module in modules)
    queries = [alert.expression for alert in ALERTS] + [query for panel in PANELS for query in panel.queries.values()]
    names = {name for query in queries for name in re.findall(r"\b[a-z]+(?:_[a-z]+)*_[a-z]+(?=[\[{) ])", query)}
    ours = {name for name in names if not name.startswith(("process_", "histogram_", "job_"))}

    missing = [name for name in ours if f'"{name.removesuffix("_bucket")}"' not in source]

    assert len(ours) > 20
    assert not missing


# --- alerts ---

FIRING: Mapping[str, Mapping[str, str]] = {
    "TrainmasterAbsent": {},
    "TrainmasterNoLeader": {'leader_election_master_status{name="dijobs.diengine.opendilab.org"}': "0x60"},
    "TrainmasterCacheBehind": {'trainmaster_cache_behind_seconds{resource="pods"}': "0+60x60"},
    "TrainmasterDefinitionsOutdated": {'trainmaster_status_writes_refused_total{kind="dijob"}': "0+1x60"},
    "TrainmasterPassHangs": {'workqueue_longest_running_processor_seconds{name="dijob"}': "0+60x60"},
    "TrainmasterJobsWait": {
        'workqueue_queue_duration_seconds_bucket{name="dijob",le="30"}': "0+1x60",
        'workqueue_queue_duration_seconds_bucket{name="dijob",le="60"}': "0+9x60",
        'workqueue_queue_duration_seconds_bucket{name="dijob",le="+Inf"}': "0+9x60",
    },
    "TrainmasterPassesFail": {'controller_runtime_reconcile_errors_total{controller="dijob"}': "0+60x60"},
    "TrainmasterJobsFail": {'training_operator_jobs_failed_total{job_namespace="ml",framework="dijob"}': "0+1x60"},
    "TrainmasterJobsRestart": {
        'training_operator_jobs_restarted_total{job_namespace="ml",framework="aitrainingjob"}': "0+1x60"
    },
    "TrainmasterJobsBlocked": {'trainmaster_longest_wait_seconds{kind="dijob",condition="PodsWaiting"}': "3000+60x60"},
    "TrainmasterUnreadableObjects": {'trainmaster_unreadable_objects_total{resource="pods"}': "0+1x60"},
    "TrainmasterEventsDropped": {'trainmaster_events_dropped_total{because="queue full"}': "0+1x60"},
    "TrainmasterClockWrong": {"trainmaster_clock_ahead_seconds": "-900x60"},
    "TrainmasterServerErrors": {'trainmaster_di_requests_total{code="503"}': "0+60x60"},
    "TrainmasterWebhookFails": {'trainmaster_admission_requests_total{result="failed"}': "0+1x60"},
    "TrainmasterCertificateEnds": {"trainmaster_admission_certificate_end_seconds": "7200x60"},
}
"""For each alert series at which it fires after half an hour, a sample a minute."""
HEALTHY: Mapping[str, str] = {
    'trainmaster_slow_plans_total{kind="dijob"}': "0x60",
    'leader_election_master_status{name="dijobs.diengine.opendilab.org",instance="a"}': "1x60",
    'leader_election_master_status{name="dijobs.diengine.opendilab.org",instance="b"}': "0x60",
    'leader_election_master_status{name="another-controller"}': "0x60",
    'trainmaster_cache_behind_seconds{resource="pods"}': "0 20 0x58",
    'trainmaster_status_writes_refused_total{kind="dijob"}': "3x60",
    'workqueue_longest_running_processor_seconds{name="dijob"}': "10x60",
    'workqueue_longest_running_processor_seconds{name="endpoints"}': "900x60",
    'workqueue_queue_duration_seconds_bucket{name="dijob",le="1"}': "0+9x60",
    'workqueue_queue_duration_seconds_bucket{name="dijob",le="+Inf"}': "0+9x60",
    'controller_runtime_reconcile_errors_total{controller="dijob"}': "0+1x60",
    'training_operator_jobs_failed_total{job_namespace="ml",framework="dijob"}': "0 1 2x58",
    'training_operator_jobs_restarted_total{job_namespace="ml",framework="dijob"}': "0 1 2x58",
    'trainmaster_longest_wait_seconds{kind="dijob",condition="PodsWaiting"}': "0+60x30 0x30",
    'trainmaster_unreadable_objects_total{resource="pods"}': "2x60",
    'trainmaster_events_dropped_total{because="shut down"}': "0+1x60",
    "trainmaster_clock_ahead_seconds": "2x60",
    'trainmaster_di_requests_total{code="200"}': "0+600x60",
    'trainmaster_admission_requests_total{result="refused"}': "0+60x60",
    "trainmaster_admission_certificate_end_seconds": "864000x60",
}

_MANAGER = 'job="kube-controller-manager"'
_KUEUE = 'job="kueue-metrics"'
_TRAINING = 'job="training-operator"'
FOREIGN: Mapping[str, str] = {
    f'leader_election_master_status{{name="cron-jobs",{_MANAGER}}}': "0x60",
    f'leader_election_master_status{{name="jobs.batch",{_MANAGER}}}': "0x60",
    **{
        f'{series}{{name="{name}",{job}{more}}}': values
        for name, job in (("job", _MANAGER), ("cronjob", _MANAGER), ("job", _KUEUE), ("mxjob-controller", _TRAINING))
        for series, more, values in (
            ("workqueue_longest_running_processor_seconds", "", "900x60"),
            ("workqueue_depth", "", "900x60"),
            ("workqueue_queue_duration_seconds_bucket", ',le="30"', "0+1x60"),
            ("workqueue_queue_duration_seconds_bucket", ',le="60"', "0+9x60"),
            ("workqueue_queue_duration_seconds_bucket", ',le="+Inf"', "0+9x60"),
        )
    },
    **{
        f'{series}{{controller="{name}",{job}{more}}}': "0+60x60"
        for name, job in (("job", _KUEUE), ("cronjob", _KUEUE), ("mxjob-controller", _TRAINING))
        for series, more in (
            ("controller_runtime_reconcile_errors_total", ""),
            ("controller_runtime_reconcile_total", ',result="error"'),
            ("controller_runtime_reconcile_time_seconds_bucket", ',le="60"'),
            ("controller_runtime_reconcile_time_seconds_bucket", ',le="+Inf"'),
        )
    },
    **{
        f'training_operator_jobs_{word}_total{{job_namespace="ml",framework="pytorch",{_TRAINING}}}': "0+9x60"
        for word in ("created", "successful", "failed", "restarted")
    },
    f'rest_client_requests_total{{code="500",{_MANAGER}}}': "0+60x60",
    f'rest_client_request_duration_seconds_bucket{{verb="GET",le="60",{_KUEUE}}}': "0+60x60",
    f'rest_client_request_duration_seconds_bucket{{verb="GET",le="+Inf",{_KUEUE}}}': "0+60x60",
    f'process_resident_memory_bytes{{instance="a",{_MANAGER}}}': "900x60",
    f'process_cpu_seconds_total{{instance="a",{_MANAGER}}}': "0+60x60",
}
"""Of other people's controllers, under names that we use, too."""


def promtool(folder: Path, *scenes: Object) -> str:
    """The complaints of ``promtool test rules``; empty if the alerts are as the scenes say."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(monitoring.rules()))
    scene_file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(scenes)}
    (folder / "test.yaml").write_text(yaml.safe_dump(scene_file))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def firing_at_30_minutes(series: Mapping[str, str], alert: str) -> Object:
    """A scene in which this alert is expected to be silent. So promtool complains, and shows the alert, if it fires."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    silent = [{"eval_time": "30m", "alertname": alert, "exp_alerts": []}]
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": silent}


@needs_prometheus
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_at_what_it_is_about(alert: monitoring.Alert, tmp_path: Path) -> None:
    complaint = promtool(tmp_path, firing_at_30_minutes(FIRING[alert.name], alert.name))

    assert f'alertname="{alert.name}"' in complaint


@needs_prometheus
def test_no_alert_fires_at_a_healthy_installation(tmp_path: Path) -> None:
    assert promtool(tmp_path, *(firing_at_30_minutes(HEALTHY, alert.name) for alert in ALERTS)) == ""


# --- metrics of others ---


def test_the_foreign_series_have_all_names_that_are_not_only_ours() -> None:
    queries = [alert.expression for alert in ALERTS] + [query for panel in PANELS for query in panel.queries.values()]
    families = "leader_election|workqueue|controller_runtime|training_operator|rest_client|process"
    used = {name for query in queries for name in re.findall(rf"\b(?:{families})_\w+", query)}

    assert used == {name.partition("{")[0] for name in FOREIGN}


@needs_prometheus
def test_no_alert_fires_at_what_another_controller_does(tmp_path: Path) -> None:
    series = {'trainmaster_slow_plans_total{kind="dijob"}': "0x60", **FOREIGN}

    assert promtool(tmp_path, *(firing_at_30_minutes(series, alert.name) for alert in ALERTS)) == ""


@needs_prometheus
def test_no_panel_shows_what_another_controller_does(tmp_path: Path) -> None:
    inputs = [{"series": name, "values": values} for name, values in FOREIGN.items()]
    own = {"$job": "trainmaster-operator-metrics-service", "$__rate_interval": "5m"}
    shown = [
        {"expr": seen_by_grafana(query, own), "eval_time": "30m", "exp_samples": []}
        for panel in PANELS
        for query in panel.queries.values()
    ]

    assert promtool(tmp_path, {"interval": "1m", "input_series": inputs, "promql_expr_test": shown}) == ""


def seen_by_grafana(query: str, variables: Mapping[str, str]) -> str:
    """Grafana puts the value of a variable into the text: quotation marks are the query's own."""
    for name, chosen in variables.items():
        query = query.replace(name, chosen)
    return query


# --- pages ---


def test_an_alert_has_the_address_of_its_page_where_the_pages_have_one() -> None:
    [group] = monitoring.rules("https://git.example/docs/runbook/")["groups"]
    urls = [rule["annotations"]["runbook_url"] for rule in group["rules"]]

    assert urls == [f"https://git.example/docs/runbook/{alert.page}" for alert in ALERTS]


def test_without_an_address_an_alert_has_no_link() -> None:
    [group] = monitoring.rules()["groups"]

    assert not [rule for rule in group["rules"] if "runbook_url" in rule["annotations"]]


def test_the_alerts_with_links_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    monitoring.main("https://git.example/docs/runbook")
    printed = yaml.safe_load(capsys.readouterr().out)

    assert printed == monitoring.prometheus_rule("https://git.example/docs/runbook")


# --- the dashboard ---


class Prometheus:
    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._url, self._session = f"http://127.0.0.1:{port}/api/v1/query", session

    async def ask_server(self, installed: Installation) -> None:
        """di-server counts requests that it refuses, too."""
        url = f"http://127.0.0.1:{installed.server.metrics_port}/v1alpha1/replicas?namespace=load-0-0"
        async with self._session.get(url) as response:
            await response.read()

    async def has_data(self, expression: str) -> bool:
        query = seen_by_grafana(expression, {"$__rate_interval": "10s", "$job": ".+"})
        async with self._session.get(self._url, params={"query": query}) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{query}: {answer.get('error')}"
        return bool(answer["data"]["result"])


@asynccontextmanager
async def scraping(installed: Installation, folder: Path) -> AsyncIterator[Prometheus]:
    port = free_port()
    scrapes = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{program.metrics_port}"]}]}
        for name, program in installed.programs.items()
    ]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes, "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "rules.yaml").write_text(yaml.safe_dump(monitoring.rules()))
    command: list[str | Path] = [
        *("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    watchdog = Watchdog(folder)
    process = Process(command, log=folder / "log", environ={}, watchdog=watchdog)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            yield Prometheus(port, session)
    finally:
        process.kill()
        watchdog.close(keep=True)


@pytest.fixture
def installed(binaries: Path) -> Iterator[Installation]:
    with installation(binaries) as installed:
        yield installed


@needs_prometheus
async def test_every_panel_of_the_dashboard_has_data_under_load(installed: Installation, tmp_path: Path) -> None:
    async with scraping(installed, tmp_path) as prometheus, Admin.of(installed.plane) as admin:
        empty = [query for panel in PANELS for query in panel.queries.values()]
        for number in range(ROUNDS):
            await run_jobs(admin, f"load-{number}", len(BY_JOB), pause=0.2, lives=[])
            await prometheus.ask_server(installed)
            empty = [query for query in empty if not await prometheus.has_data(query)]
            if not empty:
                break

        assert empty == []


def test_the_dashboard_has_the_queries_of_all_panels() -> None:
    board = json.loads((monitoring.FOLDER / "dashboard.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]

    assert shown == [query for panel in PANELS for query in panel.queries.values()]
