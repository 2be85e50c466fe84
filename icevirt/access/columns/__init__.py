"""Read arrays as columns: a selection is one plan of chunks, ranges and places, and one loop.

What these modules cannot read goes through zarr's pipeline, an array at a time.
"""
