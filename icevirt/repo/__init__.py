"""Repositories and sessions: open, read, change, commit, branches and tags.

Files become values in `icevirt.wire`; what may change is decided in `icevirt.versioning`.
"""
