import pytest

from tests.build import STAMP, Json, a_container, a_dijob, a_template, kind_of, view_of
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


# --- what di-server writes into the status ---


def declaring(**members: Json) -> Json:
    """A running job with these members, by the ends of their names."""
    named = {f"cartpole-{end.replace('_', '-')}": {"at": STAMP} | member for end, member in members.items()}
    return with_members(named)


def with_members(members: Json) -> Json:
    return a_dijob(status={"phase": "Running", "declared": {"members": members}})


COLLECTOR: Json = {"role": "collector"}
LEARNER: Json = {"role": "ddp-learner", "gpus": 8, "worldSize": 8, "aggregator": "cartpole-aggregator-b"}


def test_replicas_as_di_server_declares_them_have_no_errors() -> None:
    job = declaring(
        collector_a=COLLECTOR | {"cpus": "500m", "memory": "1.5Gi"},
        aggregator_b={"role": "aggregator", "worldSize": 1024},
        ddp_learner_c=LEARNER,
    )

    assert kind_of(job).errors(kind_of(job).decode(view_of(job))) == []


@pytest.mark.parametrize(
    ("job", "says"),
    [
        pytest.param(
            with_members({f"cartpole-collector-{i}": COLLECTOR | {"at": STAMP} for i in range(2001)}),
            "status.declared.members: there are 2001, and a job may have 2000; remove replicas by di-server",
            id="too-many",
        ),
        pytest.param(
            with_members({"mysql": COLLECTOR | {"at": STAMP}}),
            "status.declared.members: 'mysql' is not the name of a replica of this job",
            id="name-of-another-object",
        ),
        pytest.param(
            declaring(**{"collector-A": COLLECTOR}),
            "'cartpole-collector-A' is not the name of a replica",
            id="no-name-of-a-pod",
        ),
        pytest.param(
            declaring(**{"collector-" + "x" * 60: COLLECTOR}), "is not the name of a replica", id="name-too-long"
        ),
        pytest.param(
            declaring(collector_a=COLLECTOR | {"cpus": "many"}),
            "status.declared.members: 'many' is not a quantity",
            id="no-amount",
        ),
        pytest.param(
            declaring(ddp_learner_c=LEARNER),
            "'cartpole-aggregator-b' is the aggregator of a replica and is not declared",
            id="aggregator-that-is-not-there",
        ),
        pytest.param(
            declaring(ddp_learner_c=LEARNER | {"gpus": 10**9}), "Expected `int` <= 1024", id="more-gpus-than-ports"
        ),
        pytest.param(
            declaring(aggregator_b={"role": "aggregator", "worldSize": 10**9}), "Expected `int` <= 1024", id="world"
        ),
        pytest.param(
            declaring(collector_a=COLLECTOR | {"memory": "1" * 10**6}),
            "Expected `str` of length <= 64",
            id="endless-amount",
        ),
    ],
)
def test_no_pod_is_made_of_replicas_that_di_server_would_not_declare(job: Json, says: str) -> None:
    assert says in "; ".join(errors_of(job))
