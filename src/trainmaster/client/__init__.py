"""The Python API; trainmaster/__init__.py exports it."""
