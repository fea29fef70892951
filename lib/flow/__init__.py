"""Flow matching: probability paths, losses, timestep laws, regularisers, integration, bounds."""
