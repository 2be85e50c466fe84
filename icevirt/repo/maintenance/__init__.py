"""Keep a repository small, and check it.

Expiration, garbage collection, trimming, `check`, inspection.
"""
