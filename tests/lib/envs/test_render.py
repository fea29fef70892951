"""Tests of lib.envs.render."""

import functools
import os
import pathlib
import tempfile
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized
from PIL import Image

from lib.envs import ogbench, render, seeding
from tests.lib.envs import toys

SEED = seeding.seed_sequence(5, 1)
ACTIONS = np.full((7, 2), 0.1)


class RenderTest(parameterized.TestCase):
  @parameterized.parameters((1, [0, 1, 2, 3, 4, 5, 6, 7]), (3, [0, 3, 6, 7]))
  def test_film_shows_the_episode_that_was_played(self, every, steps):
    simulator = seeding.Simulator(toys.make_painted_walk())
    states = [simulator.reset(SEED)[0], *(simulator.step(action)[0] for action in ACTIONS)]
    frames = render.film(toys.make_painted_walk, SEED, ACTIONS, every)
    self.assertEqual(frames.shape, (len(steps), 4, 6, 3))
    expected = [round(10 * states[step][2]) for step in steps]
    self.assertEqual(frames[:, 0, 0, 0].tolist(), expected)

  def test_without_a_library_says_why(self):
    with self.assertRaisesRegex(render.NoOpenGLError, '(?s)egl: .*osmesa: '):
      render.film(toys.make_walk, SEED, ACTIONS)  # which cannot be drawn
    with (
      mock.patch.dict(os.environ, {'MUJOCO_GL': 'crayons'}),
      self.assertRaisesRegex(render.NoOpenGLError, 'crayons: '),
    ):
      render.film(toys.make_walk, SEED, ACTIONS)

  def test_gif_holds_the_frames(self):
    frames = np.zeros((5, 8, 10, 3), np.uint8)
    frames[np.arange(5), :, np.arange(5)] = 255
    with tempfile.TemporaryDirectory() as directory:
      path = pathlib.Path(directory) / 'film.gif'
      render.save_gif(path, frames, fps=10)
      with Image.open(path) as film:
        self.assertEqual(film.n_frames, 5)
        self.assertEqual(film.info['duration'], 100)
        for i in range(5):
          film.seek(i)
          np.testing.assert_array_equal(np.asarray(film.convert('RGB')), frames[i])
      with self.assertRaisesRegex(ValueError, 'at least one frame'):
        render.save_gif(path, frames[:0], fps=10)

  @parameterized.parameters('cube-single-v0', 'pointmaze-medium-v0')
  @pytest.mark.slow  # innermost: absl's decorator would lose the mark
  def test_simulators_are_drawn_where_a_library_is(self, name):
    make = functools.partial(ogbench.make_env, name, width=64, height=48)
    actions = np.ones((5, 2 if 'maze' in name else 5))
    try:
      frames = render.film(make, SEED, actions)
    except render.NoOpenGLError as error:
      self.skipTest(str(error))
    self.assertEqual(frames.shape, (6, 48, 64, 3))
    self.assertGreater(frames.std(), 1.0)  # not blank
    self.assertFalse((frames[0] == frames[-1]).all())  # and moving


if __name__ == '__main__':
  absltest.main()
