"""Read ranges of files on web servers, with a policy for redirects.

Object stores are read in `icevirt.objects.backends`.
"""
