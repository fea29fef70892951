"""Estimates with their intervals, and distances between samples."""
