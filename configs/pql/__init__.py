"""Configs of the PQL experiment."""
