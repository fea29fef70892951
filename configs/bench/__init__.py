"""Configs of the benchmark."""
