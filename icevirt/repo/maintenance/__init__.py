"""Keeps a repository small and checks it.

expiration, garbage collection, trimming, `check`, inspection.
"""
