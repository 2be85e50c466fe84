"""List the files of sources (globs, directories, lists, inventories) with size and checksum.

Reading them is `icevirt.objects`.
"""
