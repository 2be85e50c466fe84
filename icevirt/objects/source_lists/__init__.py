"""From sources (globs, directories, lists, inventories) to files with size and checksum.

Reading them is `icevirt.objects`.
"""
