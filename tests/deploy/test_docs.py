"""The documents name files and sections that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.operator import REPOSITORY

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
SOURCE = REPOSITORY / "src" / "trainmaster"

_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MODULE = re.compile(
    r"`(?:src/trainmaster/)?((?:core|lifecycle|kinds|runtime|kube|local|webhook|client|cli)/[\w/]+\.py)`"
)


def prose(document: Path) -> str:
    return _CODE_BLOCK.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """The sections of a document, as links name them."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(document)))
    return {heading.replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> Iterator[str]:
    for path, section in _LINK.findall(prose(document)):
        if path.startswith("http"):
            continue
        target = document.parent / path if path else document
        if not target.exists() or (section and section not in anchors(target)):
            yield f"{path}#{section}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_of_a_document_lead_to_files_and_sections(document: Path) -> None:
    assert not list(broken_links(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_modules_that_a_document_names_exist(document: Path) -> None:
    assert not [module for module in _MODULE.findall(prose(document)) if not (SOURCE / module).exists()]


def test_the_glossary_explains_at_most_25_words() -> None:
    rows = re.findall(r"^\| (.+?) \|", (REPOSITORY / "docs" / "glossary.md").read_text(), re.MULTILINE)

    words = rows[1:]  # without the heading

    assert len(words) <= 25
    assert len(set(words)) == len(words)
