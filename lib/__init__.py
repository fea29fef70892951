"""Reusable mathematics of the papers, by subject; see the table of rooms in README.md."""
