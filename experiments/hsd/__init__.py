"""HSD: operators learned through the Hodge decomposition, on meshes."""
