"""The repo info object as bytes: branches, tags, snapshots, ops log.

How it changes is decided in `icevirt.versioning`.
"""
