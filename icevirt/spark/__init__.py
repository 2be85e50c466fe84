"""The stages of a build, and the Spark that runs them."""
