"""The scanner contract: what a scanner gets, what it returns, and how icevirt finds it.

icevirt's own scanners are in `icevirt_scanners`; tasks call them in `icevirt.tasks`.
"""
