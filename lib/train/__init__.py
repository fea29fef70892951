"""Host. Runs: start-up, devices, the loop, checkpoints, metrics, figures and reports."""

from lib.train.checkpoint import restore as restore
