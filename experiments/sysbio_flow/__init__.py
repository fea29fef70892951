"""Regime-aware forecasts of biological systems that were never seen."""
