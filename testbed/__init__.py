"""A real control plane: built once (build), started on demand (plane), used as its people do (admin)."""
