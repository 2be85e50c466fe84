"""Read ranges of source objects, with access control and the checksum enforced.

The files of a repository itself are read in `icevirt.storage`.
"""
