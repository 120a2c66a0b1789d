"""Writes docs/reference. ``make generate`` calls it."""

from pathlib import Path

from reference.pages import pages

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
