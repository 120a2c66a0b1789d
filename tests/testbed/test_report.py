"""The page that a run on a real cluster writes."""

from tests.e2e.kinds import KINDS, TOO_MUCH
from tests.e2e.report import Report, Seen


def test_the_page_has_a_row_for_each_fault_and_a_column_for_each_kind() -> None:
    report = Report()
    report.fact("installed", "12.0 s")
    report.training("digits.yaml", "Succeeded after 9 s")
    report.fault("power-off", {"MXJob": Seen("runs elsewhere", 41.4), "DIJob": Seen("goes on")})

    lines = report.text(lease=8, eviction=30).splitlines()
    assert "| installed | 12.0 s |" in lines
    assert "| `digits.yaml` | Succeeded after 9 s |" in lines
    assert "| fault | AITrainingJob | MXJob | MxJob | DIJob | DIJob with tasks | NerveXJob |" in lines
    assert "| power-off | – | runs elsewhere (41 s) | – | goes on | – | – |" in lines


def test_jobs_for_faults_have_one_image_and_no_status() -> None:
    for kind in KINDS:
        job = kind.manifest("ns", node="node3", command=TOO_MUCH, memory="64Mi")
        assert job["metadata"] == {"name": "job", "namespace": "ns"}
        assert "status" not in job
        text = str(job)
        assert "registry.example" not in text
        assert "'values': ['node3']" in text
        assert kind.path("ns").startswith(f"/apis/{job['apiVersion']}/namespaces/ns/")
