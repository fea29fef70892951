"""A language model at the terminal: `--config=configs/lm/chat.py --config.prompt="Hello"`."""

import sys

from experiments.lm import run

if __name__ == '__main__':
  sys.exit(run.main(sys.argv))
