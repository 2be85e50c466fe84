"""Reads and writes FlatBuffers tables in columns, every offset checked.

What the tables mean is in the other rooms of `wire`.
"""
