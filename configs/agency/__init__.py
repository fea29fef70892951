"""Configs of the agency experiment."""
