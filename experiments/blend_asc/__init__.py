"""Blend-ASC: how to spend a budget of samples on many questions."""
