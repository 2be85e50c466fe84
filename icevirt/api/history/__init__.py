"""Answer what people ask of a repository's history: what happened, what differs, how to go back.

Nothing here reads manifests, except for the source of one value.
"""
