"""Hold the persisted configuration of a repository, with typed views of its sections.

Its files are read in `icevirt.wire`.
"""
