"""The persisted configuration of a repository, and typed views of its sections.

Its files are read in `icevirt.wire`.
"""
