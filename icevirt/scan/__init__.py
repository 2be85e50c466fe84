"""The scanner contract: what a scanner is given, what it must give back, and how one is found."""
