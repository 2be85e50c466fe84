"""Pack, cut and unpack chunk references of many files as columns.

Tables that hold them are in `icevirt.catalog`.
"""
