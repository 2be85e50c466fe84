"""Resolve what users pass as sources and containers to files.

Listing them is `icevirt.objects.source_lists`.
"""
