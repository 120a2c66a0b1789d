"""The Python API, which trainmaster/__init__.py exports, and what it shares with the commands."""
