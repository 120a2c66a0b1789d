"""HTTP faces: health and metrics."""
