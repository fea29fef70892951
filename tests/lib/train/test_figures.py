"""Tests of lib.train.figures."""

import os
import pathlib
import tempfile

import numpy as np
from absl.testing import absltest
from matplotlib import figure, image

from lib.train import figures


class SaveTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), 'deep', 'a.png')

  def test_is_a_png(self):
    drawing = figure.Figure()
    drawing.subplots().plot([0, 1])
    figures.save(drawing, self.path)
    self.assertStartsWith(self.path.read_bytes(), b'\x89PNG\r\n\x1a\n')
    pixels = image.imread(self.path)
    self.assertEqual(pixels.ndim, 3)
    self.assertGreater(np.ptp(pixels), 0.5)  # something is drawn
    self.assertEqual(os.listdir(self.path.parent), ['a.png'])

  def test_whole_or_not_at_all(self):
    class Fails(figure.Figure):
      def savefig(self, stream, **options):
        stream.write(b'half')
        raise MemoryError

    figures.save(figure.Figure(), self.path)
    before = self.path.read_bytes()
    with self.assertRaises(MemoryError):
      figures.save(Fails(), self.path)
    self.assertEqual(self.path.read_bytes(), before)
    self.assertEqual(os.listdir(self.path.parent), ['a.png'])


if __name__ == '__main__':
  absltest.main()
