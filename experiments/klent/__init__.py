"""KLENT: regularised policy optimisation in games of two players."""
