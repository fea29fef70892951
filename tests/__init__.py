"""A package of its own: a dependency installs another one by this name."""
