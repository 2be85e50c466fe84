"""Commit changes: staging, manifests, rebase, and the one write that publishes them.

Conflicts are decided in `icevirt.versioning.merge`.
"""
