"""Trains and compares forecasters of biology: `--config=configs/sysbio_flow/quick.py`."""

from experiments.sysbio_flow import train
from lib.train import app

if __name__ == '__main__':
  app.run(prepare=train.prepare, train=train.train)
