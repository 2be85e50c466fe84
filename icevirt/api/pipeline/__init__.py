"""Run the steps of a build between its arguments and its report.

The public functions are in `icevirt.api`.
"""
