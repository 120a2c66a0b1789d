"""The logs of deleted pods: what is kept, and for how long."""

from pathlib import Path

import pytest

from trainmaster.local import deleted_log
from trainmaster.local.deleted_log import deleted_pods, keep


def pod(number: int) -> dict[str, object]:
    env = [{"name": "TOKEN", "value": "secret"}]
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "annotations": {"a": "b"},
        },
        "spec": {"containers": [{"name": "main", "env": env}]},
    }


def delete(node: Path, number: int, text: str = "2026-11-18T00:00:00Z stdout F hello\n") -> None:
    folder = node / "pods" / f"uid-{number}"
    for attempt in ("0", "1"):
        place = folder / "containers" / "main" / attempt
        place.mkdir(parents=True)
        (place / "log").write_text(text)
        (place / "spec.json").write_text("secret")
    keep(node, pod(number), folder)


def names(node: Path) -> list[str]:
    return [each.folder.name.partition("-")[2] for each in deleted_pods(node)]


def test_all_attempts_are_kept_and_no_environment(tmp_path: Path) -> None:
    delete(tmp_path, 1)

    (kept,) = deleted_pods(tmp_path)
    assert [(container, attempt) for container, attempt, _ in kept.logs] == [("main", 0), ("main", 1)]
    assert not [file for file in (tmp_path / "logs").rglob("*") if file.is_file() and "secret" in file.read_text()]


@pytest.mark.parametrize(
    ("name", "limit", "left"), [("MOST_PODS", 2, ["uid-2", "uid-3"]), ("MOST_BYTES", 900, ["uid-2", "uid-3"])]
)
def test_the_oldest_logs_are_removed_beyond_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int, left: list[str]
) -> None:
    monkeypatch.setattr(deleted_log, name, limit)
    for number in (1, 2, 3):
        delete(tmp_path, number, "x" * 100)

    assert names(tmp_path) == left


def test_a_pod_that_has_not_started_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "pods" / "uid-1").mkdir(parents=True)
    keep(tmp_path, pod(1), tmp_path / "pods" / "uid-1")

    assert not deleted_pods(tmp_path)
