"""What must hold for the files of a repository, each file beside the others.

Reading them is `icevirt.repo.maintenance.api`.
"""
