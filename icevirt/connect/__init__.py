"""From a path or URL that a person typed to something to read; the one place of secrets."""
