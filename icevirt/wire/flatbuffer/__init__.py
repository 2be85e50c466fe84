"""Read and write FlatBuffers tables in columns, checking every offset.

The other folders of `wire` give the tables their meaning.
"""
