"""Attackers of docs/threat-model.md, one file each, against real processes with the manifests of deploy/ applied."""
