"""What people pass as sources and containers, resolved to files.

Listing them is `icevirt.objects.source_lists`.
"""
