"""The pages of docs/reference are complete and fresh."""

import re
from itertools import chain
from pathlib import Path

import click
import pytest

from reference import forms
from reference.__main__ import FOLDER
from reference.pages import METRICS, VARIABLES, metrics_in, options_of, pages
from trainmaster.cli import exit_code
from trainmaster.cli.main import cli
from trainmaster.kinds.registry import DEFINITIONS, KINDS

PAGES = pages()
SOURCE = Path(exit_code.__file__).parents[1]
FORMS = [pytest.param(form, id=form.kind.__name__) for form in forms.FORMS]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name], f"{FOLDER / name} is stale: run make generate"


def test_there_is_no_page_that_is_not_generated() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_kind_and_every_definition_has_a_page() -> None:
    assert {form.kind for form in forms.FORMS} == set(KINDS)
    for definition in DEFINITIONS:
        name = f"{definition.resource.group}/{definition.resource.version} | {definition.resource.plural} |"
        assert sum(name in text for text in PAGES.values()) == 1, definition.resource


def words_of(form: forms.Form) -> dict[str, str]:
    """All words of a kind; those of several tables at once are described in each."""
    tables = (
        *(form.phases, form.labels, form.annotations, form.read_annotations, form.environment, form.conditions),
        *(forms.prefixed_reasons(form), form.reasons, *form.frameworks.values()),
    )
    return dict(chain.from_iterable(table.items() for table in tables))


@pytest.mark.parametrize("form", FORMS)
def test_every_word_of_a_kind_has_a_description(form: forms.Form) -> None:
    assert not [word for word, text in words_of(form).items() if not _is_sentence(text)]


@pytest.mark.parametrize("table", ["CONDITIONS", "REASONS", "LABELS", "ANNOTATIONS", "READ_LABELS"])
def test_every_word_of_all_kinds_has_a_description(table: str) -> None:
    assert not [word for word, text in getattr(forms, table).items() if not _is_sentence(text)]


def test_every_exit_code_has_a_description() -> None:
    assert not [code for code, text in forms.constants(exit_code).items() if not _is_sentence(text)]


def test_every_metric_has_a_description() -> None:
    described = [family for module in METRICS.values() for metric in metrics_in(module) for family in metric.describe()]

    assert len(described) > 30
    assert not [family.name for family in described if not family.documentation.strip()]


@pytest.mark.parametrize("name", cli.commands)
def test_every_option_of_a_command_has_a_description(name: str) -> None:
    command = cli.commands[name]

    assert command.help
    assert not [option.opts for option in options_of(command) if not (option.hidden or option.help)]


@pytest.mark.parametrize("name", cli.commands)
def test_every_option_of_a_command_is_on_the_page_of_commands(name: str) -> None:
    text = re.split(r"^## ", PAGES["commands.md"], flags=re.MULTILINE)
    (section,) = (part for part in text if part.startswith(f"{name}\n"))

    missing = [option.opts for option in options_of(cli.commands[name]) if not set(option.opts) & _spelled(section)]
    assert not missing


def test_every_variable_that_the_commands_read_is_on_their_page() -> None:
    """All but those that local mode sets itself for the processes of pods."""
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if "local/node" not in str(path))
    read = set(re.findall(r'environ\.get\("(\w+)"', text))

    assert read
    assert read <= set(VARIABLES)


def _spelled(section: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", section))


def _is_sentence(text: str) -> bool:
    return bool(re.fullmatch(r"\S.*\.", text, re.DOTALL))


def test_a_group_of_commands_would_need_a_page_of_its_own() -> None:
    assert not [name for name, command in cli.commands.items() if isinstance(command, click.Group)]
