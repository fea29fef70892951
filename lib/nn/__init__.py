"""Layers that two or more subjects share."""
