"""Append to the tail of a dataset without a look at the rest of it.

`flat` is the way in, `tail_state` what one append leaves for the next.
"""
