"""Configs of the self-preference experiment."""
