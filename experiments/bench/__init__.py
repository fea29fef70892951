"""How fast this machine runs the repository's inner loops, against its own yardsticks."""
