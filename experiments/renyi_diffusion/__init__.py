"""Rényi diffusion: score matching with one knob between coverage and quality."""
