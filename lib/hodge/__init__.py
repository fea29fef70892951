"""Discrete exterior calculus on meshes: operators, Hodge stars, decomposition, spectra."""
