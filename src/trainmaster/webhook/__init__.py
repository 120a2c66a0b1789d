"""Admission: jobs are defaulted and checked before the API server stores them."""
