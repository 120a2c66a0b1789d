import pytest

from tests.build import Json, a_container, a_pod, a_replica, a_template, an_aitj, kind_of, plan_of, view_of
from trainmaster.core.errors import BadSpec

GOOD = a_template(a_container("aitj-main"))


def errors_of(job: Json) -> tuple[str, ...]:
    with pytest.raises(BadSpec) as caught:
        kind_of(job).decode(view_of(job))
    return caught.value.errors


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(an_aitj(trainer=2, ps=1), id="two roles"),
        pytest.param(an_aitj(trainer=1, ps=0), id="a role without pods"),
        pytest.param(an_aitj(Trainer=1), id="a name in capitals"),
        pytest.param(an_aitj(trainer={"template": GOOD}), id="one replica by default"),
        pytest.param(an_aitj("a" * 53, trainer=1), id="a name of 53 characters: 63 with -trainer-0"),
        pytest.param(an_aitj("a" * 53, trainer=10), id="whose last pod has one digit"),
        pytest.param(an_aitj(trainer=a_replica(2, minReplicas=1, maxReplicas=3)), id="an elastic range"),
        pytest.param(an_aitj(spec={"restartingExitCode": " 137, 128-143 ,SIGSEGV"}), id="exit codes of all sorts"),
        pytest.param(an_aitj("j", a=a_replica(5000), b=a_replica(5000)), id="as many replicas as a job may have"),
        pytest.param(
            an_aitj("j", a=a_replica(5000, maxReplicas=10_000), b=a_replica(5000)), id="a maximum that nothing grows to"
        ),
        pytest.param(an_aitj(trainer=a_replica(2, minReplicas=2, maxReplicas=2)), id="a range of one"),
        pytest.param(
            an_aitj(spec={"frameworkType": "paddle", "faultTolerant": True, "x": 1}), id="fields nobody reads"
        ),
        *(pytest.param(an_aitj(clean=word), id=f"cleanPodPolicy {word}") for word in ("All", "Running", "None")),
        *(
            pytest.param(an_aitj(complete=word, fail=word), id=f"end policies {word}")
            for word in ("All", "Rank0", "Any", "None")
        ),
    ],
)
def test_a_good_job_has_no_errors(job: Json) -> None:
    assert kind_of(job).errors(kind_of(job).decode(view_of(job))) == []


@pytest.mark.parametrize(
    ("job", "path", "what"),
    [
        pytest.param(an_aitj("7up"), "metadata.name", "must start with a letter", id="a digit first"),
        pytest.param(an_aitj("a" * 54, trainer=1), "metadata.name", "by 1", id="a name too long"),
        pytest.param(an_aitj("a" * 53, trainer=11), "metadata.name", "by 1", id="a name too long for its last pod"),
        pytest.param(
            an_aitj(my_ps=1), "spec.replicaSpecs.my_ps", "letters, digits and '-'", id="an underscore in a role"
        ),
        pytest.param(
            an_aitj(roles={"2nd": 1}), "spec.replicaSpecs.2nd", "starts with a letter", id="a role that is a number"
        ),
        pytest.param(
            an_aitj(Ps=1, ps=1), "spec.replicaSpecs.ps", "differs from 'Ps' only in case", id="two roles of one name"
        ),
        pytest.param(
            an_aitj(trainer=a_replica(1, a_template())),
            "spec.replicaSpecs.trainer.template.spec.containers",
            "length >= 1",
            id="no container",
        ),
        pytest.param(an_aitj(trainer=0), "spec.replicaSpecs", "no replica has a pod", id="no pod at all"),
        pytest.param(an_aitj(spec={"replicaSpecs": {}}), "spec.replicaSpecs", "length >= 1", id="no role at all"),
        pytest.param(
            an_aitj(trainer=a_replica(1, minReplicas=2)),
            "spec.replicaSpecs.trainer.minReplicas",
            "2 is more than replicas (1)",
            id="below the minimum",
        ),
        pytest.param(
            an_aitj(trainer=a_replica(3, maxReplicas=2)),
            "spec.replicaSpecs.trainer.maxReplicas",
            "2 is less than replicas (3)",
            id="above the maximum",
        ),
        pytest.param(an_aitj(clean="Some"), "spec.cleanPodPolicy", "'Some'", id="an unknown clean-up policy"),
        pytest.param(an_aitj(fail="Most"), "spec.failPolicy", "'Most'", id="an unknown end policy"),
        pytest.param(
            an_aitj(spec={"restartingExitCode": "137,oops"}),
            "spec.restartingExitCode",
            "'oops' is no exit code",
            id="an exit code that is none",
        ),
        pytest.param(
            an_aitj(spec={"restartingExitCode": "143-128"}),
            "spec.restartingExitCode",
            "write 128-143",
            id="an empty range of exit codes",
        ),
        pytest.param(an_aitj(spec={"timeLimit": 0}), "spec.timeLimit", ">= 1", id="no time at all"),
        pytest.param(
            an_aitj("j", a=a_replica(4000), b=a_replica(4000), c=a_replica(2001)),
            "spec.replicaSpecs",
            "the replicas of all roles add up to 10001, and a job may have 10000; lower replicas or maxReplicas",
            id="too many replicas in all",
        ),
        pytest.param(
            an_aitj("j", a=a_replica(1, edlPolicy="Auto", maxReplicas=5000), b=a_replica(5001)),
            "spec.replicaSpecs",
            "add up to 10001",
            id="too many replicas, should there be room",
        ),
        pytest.param(
            an_aitj("j", a=a_replica(1, edlPolicy="Manual", maxReplicas=5000), b=a_replica(5001)),
            "spec.replicaSpecs",
            "add up to 10001",
            id="too many replicas, should they be asked for",
        ),
        pytest.param(
            an_aitj("j", a=a_replica(2, edlPolicy="Manual"), b=a_replica(5001), spec={"elasticReplicas": 5000}),
            "spec.replicaSpecs",
            "add up to 10001",
            id="too many replicas since it was scaled",
        ),
        pytest.param(
            an_aitj(trainer=a_replica(2000, a_template(*({"name": f"c{i}"} for i in range(4000))))),
            "spec.replicaSpecs.trainer.template",
            "KiB, and an object may have 1536 KiB; lower replicas, publish fewer ports, or use fewer containers",
            id="pods that nothing can store",
        ),
        pytest.param(
            an_aitj("j" * 40, roles={role: a_replica(1100) for role in "abcdefghi"}),
            "spec.replicaSpecs",
            "the addresses of 9900 replicas need 1044 KiB, and one ConfigMap holds 1024 KiB; "
            "lower replicas, publish fewer ports, or shorten the names",
            id="more addresses than a ConfigMap holds",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_the_path(job: Json, path: str, what: str) -> None:
    (error,) = errors_of(job)

    assert error.startswith(f"{path}: ")
    assert what in error


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"replicas": -1}, ">= 0"),
        ({"replicas": "two"}, "got `str`"),
        ({"restartPolicy": "Sometimes"}, "'Sometimes'"),
        ({"restartScope": "Pods"}, "'Pods'"),
        ({"completePolicy": "First"}, "'First'"),
        ({"edlPolicy": "Maybe"}, "'Maybe'"),
        ({"restartLimit": -1}, ">= 0"),
    ],
)
def test_a_replica_with_a_wrong_value_is_refused(fields: Json, what: str) -> None:
    (error,) = errors_of(an_aitj(trainer={"template": GOOD, **fields}))

    (field,) = fields
    assert error.startswith("spec.replicaSpecs")
    assert f".{field}: " in error
    assert what in error


def test_all_errors_are_told_at_once() -> None:
    job = an_aitj("7up", a=a_replica(1, {}), b=a_replica(1, minReplicas=2), c_d=1)

    paths = {error.partition(":")[0] for error in errors_of(job)}

    assert paths == {
        "metadata.name",
        "spec.replicaSpecs.a.template",
        "spec.replicaSpecs.b.minReplicas",
        "spec.replicaSpecs.c_d",
    }


def test_the_order_of_the_errors_does_not_depend_on_the_order_of_the_roles() -> None:
    a, b = a_replica(1, {}), a_replica(1, minReplicas=2)

    assert errors_of(an_aitj(a=a, b=b)) == errors_of(an_aitj(b=b, a=a))


def test_a_running_job_that_has_more_replicas_than_a_job_may_have_is_told_so_and_keeps_its_pods() -> None:
    job = an_aitj("j", a=a_replica(6000), b=a_replica(6000), status={"phase": "Running"})

    plan = plan_of(job, [a_pod(job, "a", 0), a_pod(job, "b", 0)])

    assert (plan.deletes, plan.creates) == ((), ())
    assert plan.status is not None
    (accepted,) = [c for c in plan.status["conditions"] if c["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith("spec.replicaSpecs: the replicas of all roles add up to 12000")
    assert plan.status["phase"] == "Running"


@pytest.mark.parametrize(("policy", "is_refused"), [("Manual", True), ("Never", False)])
def test_more_members_than_fit_into_a_config_map_are_refused(policy: str, is_refused: bool) -> None:
    roles = {name: a_replica(3000, GOOD, edlPolicy=policy) for name in ("a", "b", "c")}
    job = an_aitj("j" * 20, roles=roles)

    found = errors_of(job) if is_refused else tuple(kind_of(job).errors(kind_of(job).decode(view_of(job))))

    expected = "spec.replicaSpecs: the members of an elastic job must fit into one ConfigMap (1024 KiB); lower replicas"
    assert found == ((expected,) if is_refused else ())


def test_more_addresses_than_fit_into_a_variable_are_refused() -> None:
    template = a_template(a_container("aitj-main", ports={"aitj-a": 4444, "aitj-b": 4445}))
    job = an_aitj(worker=a_replica(3000, template))

    plan = plan_of(job)

    assert plan.status is not None
    said = plan.status["conditions"][0]["message"]
    assert said.startswith("spec.replicaSpecs.worker.replicas: 3000 addresses do not fit into one environment variable")
