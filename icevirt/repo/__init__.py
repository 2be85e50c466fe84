"""Provide repositories and sessions: commits, history, branches, tags, configuration.

Files become values in `icevirt.wire`; what may change is decided in `icevirt.versioning`.
"""
