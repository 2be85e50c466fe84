"""The command ``icevirt``: thin functions over the public API that return values to be shown."""
