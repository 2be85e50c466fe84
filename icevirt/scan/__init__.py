"""Define the scanner contract: what a scanner gets, what it must return, how it is found."""
