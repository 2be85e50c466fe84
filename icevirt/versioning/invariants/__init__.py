"""Check what must hold for the files of a repository, across files.

Reading them is `icevirt.repo.maintenance.api`.
"""
