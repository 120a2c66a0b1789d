"""The examples, as their reader types them."""

import re
from pathlib import Path

from tests.local.conftest import Start
from tests.local.program import containers_of

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("aitrainingjob-mnist", "aitrainingjob-ps", "dijob-serial")
"""Those that need nothing but a shell; the others have tests of their own."""


def test_the_examples_run_to_their_good_end_on_this_machine(start: Start, tmp_path: Path) -> None:
    programs = {name: start("run", str(EXAMPLES / f"{name}.yaml"), "--timeout", "2m") for name in NAMES}
    codes = {name: program.end()[0] for name, program in programs.items()}

    assert codes == dict.fromkeys(NAMES, 0)
    assert containers_of(tmp_path) == []


def test_the_mock_of_a_nervexjob_plays_its_story_to_the_end(start: Start, tmp_path: Path) -> None:
    """As nervex-operator's guide tells it: the aggregator first, then replicas, one collector less, and the end."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    manifest = tmp_path / "job.yaml"
    manifest.write_text((EXAMPLES / "nervexjob-mock.yaml").read_text().replace('value: "1"', 'value: "0.1"'))

    code, said, _ = start("run", str(manifest), "--timeout", "2m").end()

    story = [
        r"try to connect to nervexjob-example-1-aggregator\.default:\d+",
        r"Successed to connect to nervexjob-example-1-aggregator\.default:\d+",
        r"have connected to aggregator",
        r"Recevied replicas response from server {'namespace': .*'learners': \['nervexjob-example-1-learner-",
        r"Have connected [12] collectors, 1 learners, match limit requests\.",
        r"Start\.\.\.",
        r"replay_buffer\(buffer_.*\) is created",
        r"send data\(",
        r"Your RL agent is converged",
        r"nervexjob/nervexjob-example-1 Succeeded",
    ]
    rest = said
    for words in story:
        found = re.search(words, rest)
        assert found, f"{words} does not come, or not in its place: {said}"
        rest = rest[found.end() :]
    assert re.search(r"send delete and received .*'collectors': \['nervexjob-example-1-collector-\w+\.default", said)
    assert not re.search(r"currnet list: .*aggregator", said)
    assert code == 0
    assert containers_of(tmp_path) == []
