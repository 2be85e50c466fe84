"""Keep a dataset as its archive is: list the files again, and commit the difference.

What is decided is in `differences`; everything else looks, runs or writes.
"""
