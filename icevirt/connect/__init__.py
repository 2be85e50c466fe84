"""URLs, credentials and options, made into stores; the one place that knows secrets.

Source files are read in `icevirt.objects`, files of a repository in `icevirt.storage`.
"""
