"""Measurements on the test bed: `make bench`, or `python -m bench --only a,c --jobs 20` for a part of it."""
