"""An installation on a real cluster of three nodes: `make e2e`."""
