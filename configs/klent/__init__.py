"""Configs of the KLENT experiment."""
