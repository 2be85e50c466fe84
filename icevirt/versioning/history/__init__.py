"""Decide timestamps, the ops log, expiration, garbage and the ancestry graph.

The files are read and deleted in `icevirt.repo`.
"""
