"""Keeps a repository small and checks it: expiration, garbage collection, trimming, `check`.

What is garbage or expired is decided in `icevirt.versioning.history`.
"""
