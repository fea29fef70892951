"""Pools a language model's personas: `--config=configs/agency/quick.py`."""

from experiments.agency import study
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=study.prepare, train=study.run)
