"""The examples, as their reader types them."""

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
