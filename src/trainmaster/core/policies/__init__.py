"""Policies that several kinds share: one file each, named with the user's word."""
