"""Configs of the Rényi diffusion experiment."""
