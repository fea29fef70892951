"""Opinion pools of agents that score log-probabilities: pools, welfare gaps, splits, edits."""
