"""Repositories of the Icechunk V1 format: read, changed, and upgraded to V2.

What the upgrade makes of them is decided in `icevirt.versioning.v1_migration`.
"""
