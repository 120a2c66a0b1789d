"""Pods and the service of a DIJob with tasks: names, labels, annotations, and the environment of ``ditask``."""

import msgspec
import pytest

from tests.build import (
    SETTINGS,
    Child,
    Json,
    a_container,
    a_ditask,
    a_pod,
    a_task,
    a_template,
    after,
    plan_of,
    services_of,
    settled,
    with_spec,
)
from tests.kinds.ditask.environment import environment_of, nodes_of, own_node
from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Resource
from trainmaster.kinds.base import Settings
from trainmaster.lifecycle.gang import VOLCANO_GROUP


def bodies(job: Json, resource: Resource = POD, *, settings: Settings = SETTINGS) -> dict[str, Json]:
    """What the first pass creates, by name. Ranks are stored before."""
    first = plan_of(job, settings=settings)
    assert (first.status_first, first.creates) == (True, ())
    job, _ = after(job, (), first)
    creates = plan_of(job, settings=settings).creates
    return {create.key.name: create.body for create in creates if create.resource == resource}


def address(place: str) -> str:
    return f"cartpole-{place}.di-cartpole.rl.svc.cluster.local"


def test_a_pod_has_the_names_labels_and_annotations_of_di_orchestrator() -> None:
    pod = bodies(a_ditask())["cartpole-collector-1"]

    assert pod["metadata"]["labels"] == {
        "diengine/job": "cartpole",
        "diengine/operator": "di-operator",
        "diengine/pod": "cartpole-collector-1",
        "diengine/task-type": "collector",
        "diengine/task-name": "collector",
        "diengine/rank": "2",
        "diengine/task-rank": "1",
        "diengine/restart-count": "0",
        "app.kubernetes.io/managed-by": "trainmaster",
    }
    assert pod["metadata"]["annotations"] == {
        "diengine/replicas": "3",
        "diengine/rank": "2",
        "diengine/task-rank": "1",
        "diengine/node": "",
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("cartpole-collector-1", "di-cartpole")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)


def test_there_is_one_headless_service_for_all_pods() -> None:
    (service,) = bodies(a_ditask(), SERVICE).values()

    own = {"diengine/job": "cartpole", "diengine/operator": "di-operator"}
    assert service["metadata"]["name"] == "di-cartpole"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": own,
        "publishNotReadyAddresses": True,
        "ports": [{"name": "di-port", "port": 22270}],
    }


def test_every_container_has_the_environment_of_ditask() -> None:
    template = a_template(a_container("di-container"), a_container("log"), initContainers=[a_container("wait")])

    spec = bodies(a_ditask("cartpole", a_task("learner"), a_task("league-0", 2, template)))["cartpole-league-0-1"][
        "spec"
    ]

    expected = {
        "DI_JOB_ID": "rl/cartpole",
        "DI_SERVER_URL": "http://di-server.di-system:8080",
        "DI_RANK": "2",
        "DI_NODES": ",".join(map(address, ("learner-0", "league-0-0", "league-0-1"))),
        "DI_LEAGUE_0_NODES": ",".join(map(address, ("league-0-0", "league-0-1"))),
    }
    for container in (*spec["containers"], *spec["initContainers"]):
        assert {entry["name"]: entry["value"] for entry in container["env"]} == expected


def test_address_and_domain_are_those_of_the_settings() -> None:
    settings = msgspec.structs.replace(SETTINGS, server_url="https://di:1", service_domain="svc.x.org")

    found = environment_of(bodies(a_ditask(), settings=settings)["cartpole-learner-0"])

    assert found["DI_SERVER_URL"] == "https://di:1"
    assert own_node(found) == "cartpole-learner-0.di-cartpole.rl.svc.x.org"


def test_a_pod_keeps_what_its_template_says_but_for_the_restart_policy() -> None:
    template = a_template(
        a_container("di-container", env=[{"name": "DI_RANK", "value": "7"}, {"name": "A", "value": "$(DI_RANK)"}]),
        labels={"team": "rl"},
        restartPolicy="Always",
        volumes=[{"name": "a", "emptyDir": {}}],
    )
    template["metadata"]["annotations"] = {"note": "b"}
    job = a_ditask("cartpole", a_task("learner", 1, template), spec={"volumes": [{"name": "b", "emptyDir": {}}]})

    pod = bodies(job)["cartpole-learner-0"]

    assert pod["metadata"]["labels"]["team"] == "rl"
    assert pod["metadata"]["annotations"]["note"] == "b"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["a", "b"]
    assert (environment_of(pod)["DI_RANK"], environment_of(pod)["A"]) == ("0", "$(DI_RANK)")


@pytest.mark.parametrize(
    ("spec", "priority_class", "label"),
    [
        pytest.param({}, None, None, id="none"),
        pytest.param({"priority": "normal"}, None, "normal", id="normal"),
        pytest.param({"priority": "high"}, "high", "high", id="high"),
    ],
)
def test_a_high_priority_is_a_priority_class(spec: Json, priority_class: str | None, label: str | None) -> None:
    pod = bodies(a_ditask(spec=spec))["cartpole-learner-0"]

    assert pod["spec"].get("priorityClassName") == priority_class
    assert pod["metadata"]["labels"].get("diengine/priority") == label


# --- after changes ---


def running(job: Json) -> tuple[Json, list[Child]]:
    """The job while all of its pods run."""
    stored, _ = settled(job)
    pods = [a_pod(stored, task["type"], i) for task in job["spec"]["tasks"] for i in range(task["replicas"])]
    return settled(stored, [*pods, *services_of(stored)])


def created_later(job: Json, children: list[Child]) -> dict[str, dict[str, str]]:
    """The environment of the pods that the next passes create."""
    found: dict[str, dict[str, str]] = {}
    for _ in range(4):
        plan = plan_of(job, children)
        found |= {c.key.name: environment_of(c.body) for c in plan.creates if c.resource == POD}
        job, children = after(job, children, plan)
    return found


def test_a_scale_up_appends_ranks_and_the_new_pod_knows_all_nodes_by_rank() -> None:
    job, children = running(a_ditask("cartpole", a_task("collector", 1), a_task("learner", 1)))

    grown = with_spec(job, tasks=[a_task("collector", 2), a_task("learner", 1)])
    found = created_later(grown, children)

    assert list(found) == ["cartpole-collector-1"]
    assert nodes_of(found["cartpole-collector-1"]) == [*map(address, ("collector-0", "learner-0", "collector-1"))]
    assert own_node(found["cartpole-collector-1"]) == address("collector-1")


def test_a_pod_that_comes_again_has_its_rank_and_a_gap_where_a_replica_was_scaled_away() -> None:
    job, children = running(a_ditask("cartpole", a_task("collector", 2), a_task("learner", 1)))
    smaller = with_spec(job, tasks=[a_task("collector", 1), a_task("learner", 1)])
    stored, left = settled(smaller, children)
    kept = [child for child in left if child.key.name != "cartpole-learner-0"]

    found = created_later(stored, kept)

    assert nodes_of(found["cartpole-learner-0"]) == [address("collector-0"), "localhost", address("learner-0")]
    assert found["cartpole-learner-0"]["DI_RANK"] == "2"


def test_a_replica_that_has_succeeded_is_a_gap_because_its_name_does_not_resolve() -> None:
    job, children = running(a_ditask("cartpole", a_task("collector", 1), a_task("learner", 1)))
    done = [a_pod(job, "collector", exit_code=0), *(c for c in children if c.key.name == "di-cartpole")]

    found = created_later(job, done)

    assert nodes_of(found["cartpole-learner-0"]) == ["localhost", address("learner-0")]


def test_the_addresses_of_a_large_job_are_in_a_config_map() -> None:
    job = a_ditask("cartpole", a_task("collector", 100))
    maps = bodies(job, CONFIG_MAP)
    pod = bodies(job)["cartpole-collector-42"]

    environment = environment_of(pod, maps)

    assert len(nodes_of(environment)) == 100
    assert own_node(environment) == address("collector-42")
    assert environment["DI_COLLECTOR_NODES"] == environment["DI_NODES"]


def test_the_pods_of_all_tasks_are_one_gang() -> None:
    settings = msgspec.structs.replace(SETTINGS, gang_scheduler="volcano")
    job = a_ditask(spec={"runPolicy": {"schedulingPolicy": {"queue": "night"}}})

    (group,) = bodies(job, VOLCANO_GROUP, settings=settings).values()
    pods = bodies(job, settings=settings).values()

    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "night")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods} == {"cartpole"}
    assert all("diengine/rank" in pod["metadata"]["annotations"] for pod in pods)
