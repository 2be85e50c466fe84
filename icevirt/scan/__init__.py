"""Define the scanner contract: what a scanner gets, what it must return, how it is found.

icevirt's own scanners are in `icevirt_scanners`; tasks call them in `icevirt.tasks`.
"""
