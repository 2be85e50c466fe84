"""Read, change and upgrade repositories of the Icechunk V1 format.

What the upgrade makes of them is decided in `icevirt.versioning.v1_migration`.
"""
