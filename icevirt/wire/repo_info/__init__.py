"""Encode the repo info: branches, tags, snapshots, ops log.

How it changes is decided in `icevirt.versioning`.
"""
