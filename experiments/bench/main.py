"""Measures this machine and the inner loops on it: `--config=configs/bench/quick.py`."""

from experiments.bench import measure
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=measure.prepare, train=measure.measure)
