"""Which containers train: those of a special name, else those of the template, whatever admission has added."""

import pytest

from tests.build import a_container, a_template
from trainmaster.lifecycle.training import Training


@pytest.mark.parametrize(
    ("main", "template", "pod", "expected"),
    [
        pytest.param("aitj-*", ["aitj-a", "log"], ["aitj-a", "log", "proxy"], {"aitj-a"}, id="the special name"),
        pytest.param("mxnet", ["mxnet", "log"], ["log", "mxnet"], {"mxnet"}, id="another special name"),
        pytest.param("aitj-*", ["train", "log"], ["train", "log", "proxy"], {"train", "log"}, id="the template"),
        pytest.param("aitj-*", ["train", "new"], ["train", "proxy"], {"train"}, id="a container was added to the spec"),
        pytest.param("aitj-*", ["other"], ["aitj-a", "proxy"], {"aitj-a"}, id="an older pod, with the special name"),
        pytest.param("aitj-*", ["other"], ["train", "proxy"], {"train", "proxy"}, id="an older pod, without it"),
    ],
)
def test_the_containers_that_train(main: str, template: list[str], pod: list[str], expected: set[str]) -> None:
    training = Training.of(main, a_template(*map(a_container, template)))

    assert training.containers(pod) == expected


def test_without_a_readable_template_all_containers_train() -> None:
    assert Training.of("aitj-*", {"spec": {"containers": 5}}).containers(["train"]) == {"train"}
    assert Training.of("aitj-*", None).containers(["train"]) == {"train"}
