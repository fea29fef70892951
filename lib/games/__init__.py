"""Two-player zero-sum games: regularised updates, their limits, self-play, ratings."""
