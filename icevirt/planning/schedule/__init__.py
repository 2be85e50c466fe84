"""Which task writes which manifests, and what that costs.

Where files lie in arrays is decided in `axes`.
"""
