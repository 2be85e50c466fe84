"""From a path or URL that a person typed to something that can be read; the one place of secrets."""
