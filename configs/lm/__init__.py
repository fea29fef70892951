"""Configs of the language model at the terminal."""
