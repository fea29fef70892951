"""ml_collections configs; every number of every experiment."""
