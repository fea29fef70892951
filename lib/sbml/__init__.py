"""SBML: models of biochemical systems, compiled to JAX right-hand sides and simulated."""
