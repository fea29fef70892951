"""Whether a language model that judges answers prefers its own beyond being a poor judge."""
