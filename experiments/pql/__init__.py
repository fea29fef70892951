"""PQL: PDE-regularised Q-learning with flow policies."""
