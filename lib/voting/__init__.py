"""Estimating the mode of answers: confidence, stopping, allocation of samples, scaling laws."""
