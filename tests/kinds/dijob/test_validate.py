import pytest

from tests.build import Json, a_container, a_dijob, a_template, kind_of, view_of
from trainmaster.core.errors import BadSpec

GOOD = a_template(a_container("di-container"), volumes=[{"name": "data", "emptyDir": {}}])


def errors_of(job: Json) -> tuple[str, ...]:
    with pytest.raises(BadSpec) as caught:
        kind_of(job).decode(view_of(job))
    return caught.value.errors


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(a_dijob(), id="the coordinator alone"),
        pytest.param(a_dijob(spec={"collector": {"template": GOOD}, "learner": {"template": GOOD}}), id="all roles"),
        pytest.param(a_dijob("a" * 51), id="a name of 51 characters: 63 with -coordinator"),
        pytest.param(
            a_dijob("a" * 47, spec={"collector": {"template": GOOD}}),
            id="a name of 47 characters: 63 with -collector-xxxxx",
        ),
        pytest.param(
            a_dijob("a" * 45, spec={"learner": {"template": GOOD}}),
            id="a name of 45 characters: 63 with -ddp-learner-xxxxx",
        ),
        pytest.param(
            a_dijob("a" * 51, spec={"learner": {"template": GOOD}}, status={"phase": "Running"}),
            id="a long name of a job that runs already",
        ),
        pytest.param(a_dijob(coordinator=GOOD, spec={"volumes": [{"name": "other"}]}), id="volumes of both"),
        pytest.param(a_dijob(spec={"group": "g", "fieldOfTheFuture": 1}), id="fields that nobody reads"),
        *(
            pytest.param(a_dijob(clean=word), id=f"cleanPodPolicy {word!r}")
            for word in ("Running", "All", "ALL", "None", "")
        ),
    ],
)
def test_a_good_job_has_no_errors(job: Json) -> None:
    assert kind_of(job).errors(kind_of(job).decode(view_of(job))) == []


@pytest.mark.parametrize(
    ("job", "path", "what"),
    [
        pytest.param(a_dijob("7up"), "metadata.name", "must start with a letter", id="a digit first"),
        pytest.param(a_dijob("a" * 52), "metadata.name", "shorten the job's name by 1", id="a name too long"),
        pytest.param(
            a_dijob("a" * 48, spec={"collector": {"template": GOOD}}),
            "metadata.name",
            "-collector-xxxxx' would have 64 characters",
            id="a name too long for collectors",
        ),
        pytest.param(
            a_dijob("a" * 46, spec={"learner": {"template": GOOD}, "collector": {"template": GOOD}}),
            "metadata.name",
            "-ddp-learner-xxxxx' would have 64 characters",
            id="a name too long for DDP learners",
        ),
        pytest.param(a_dijob("my.job"), "metadata.name", "'my.job'", id="a dot"),
        pytest.param(
            a_dijob(coordinator=a_template()),
            "spec.coordinator.template.spec.containers",
            "length >= 1",
            id="no container",
        ),
        pytest.param(
            a_dijob(spec={"learner": {"template": {"spec": {}}}}),
            "spec.learner.template.spec",
            "containers",
            id="learner",
        ),
        pytest.param(
            a_dijob(spec={"collector": {"template": {}}}), "spec.collector.template", "`spec`", id="collector"
        ),
        pytest.param(a_dijob(clean="Some"), "spec.cleanPodPolicy", "'Some'", id="an unknown policy"),
        pytest.param(a_dijob(spec={"coordinator": None}), "spec.coordinator", "got `null`", id="no coordinator"),
        pytest.param(a_dijob(spec={"coordinator": {}}), "spec.coordinator", "`template`", id="no template"),
        pytest.param(
            a_dijob(coordinator=GOOD, spec={"volumes": [{"name": "x"}, {"name": "data"}]}),
            "spec.volumes[1].name",
            "'data' is also a volume of spec.coordinator.template",
            id="a volume twice",
        ),
        pytest.param(
            a_dijob(spec={"learner": {"template": GOOD}, "volumes": [{"name": "data"}]}),
            "spec.volumes[0].name",
            "spec.learner.template",
            id="a volume twice in another role",
        ),
        pytest.param(
            a_dijob(spec={"collector": {"template": a_template(*({"name": f"c{i}"} for i in range(12_000)))}}),
            "spec.collector.template",
            "KiB, and an object may have 1536 KiB",
            id="pods that nothing can store",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_the_path(job: Json, path: str, what: str) -> None:
    (error,) = errors_of(job)

    assert error.startswith(f"{path}: ")
    assert what in error


def test_all_errors_are_told_at_once() -> None:
    job = a_dijob("7up", coordinator=a_template(), spec={"learner": {"template": {}}})

    paths = [error.partition(":")[0] for error in errors_of(job)]

    assert paths == ["metadata.name", "spec.coordinator.template.spec.containers", "spec.learner.template"]
