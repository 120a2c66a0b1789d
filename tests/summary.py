"""A plug-in for pytest (`-p tests.summary`): at the end, one line for each suite with its counts.

A suite is a folder under tests/. pytest's own last line stays the last.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence

import pytest

# In this order; pytest's other categories (warnings, deselected) are no outcomes of tests.
OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "error": "errors",
    "skipped": "skipped",
    "xfailed": "xfailed",
    "xpassed": "xpassed",
}


def suite_of(nodeid: str) -> str:
    """The folder under tests/ that a test is in; `tests` for a file directly there."""
    folders = nodeid.split("::", maxsplit=1)[0].split("/")[:-1]
    if folders[:1] == ["tests"]:
        folders = folders[1:]
    return folders[0] if folders else "tests"


def lines_of(outcomes: Mapping[str, Sequence[str]]) -> list[str]:
    """One line for each suite, from the node ids by outcome."""
    suites: dict[str, Counter[str]] = {}
    for outcome in OUTCOMES:
        for nodeid in outcomes.get(outcome, ()):
            suites.setdefault(suite_of(nodeid), Counter())[outcome] += 1
    return [f"suite {suite}: {_counts(suites[suite])}" for suite in sorted(suites)]


def _counts(counter: Counter[str]) -> str:
    # "0 passed" is worth saying; "0 failed" is not.
    said = [f"{counter['passed']} passed"]
    said += [f"{counter[key]} {word}" for key, word in OUTCOMES.items() if key != "passed" and counter[key]]
    return ", ".join(said)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: after the list of failures, before the last line
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Called by pytest before it writes its last line."""
    yield
    outcomes = {outcome: [report.nodeid for report in terminalreporter.stats.get(outcome, ())] for outcome in OUTCOMES}
    for line in lines_of(outcomes):
        terminalreporter.write_line(line)
