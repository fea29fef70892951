"""Host. Films of episodes, where an OpenGL library is present."""

import functools
import os
import pathlib
from collections.abc import Callable

import gymnasium
import numpy as np
from PIL import Image

from lib.envs import seeding, workers
from lib.io import files

BACKENDS = ('egl', 'osmesa')  # both draw without a display


class NoOpenGLError(RuntimeError):
  """No OpenGL library on this machine can draw."""


def film(
  make_env: Callable[[], gymnasium.Env],
  seed: np.random.SeedSequence,
  actions: np.ndarray,
  every: int = 1,
) -> np.ndarray:
  """Plays an episode again and draws it, in a process of its own.

  MuJoCo chooses its OpenGL library when it is imported, and a broken one can end the process.

  Args:
    make_env: picklable; makes the environment, with the frames' width and height.
    seed: of the episode; what `run_episodes` starts episode i from is `seed_sequence(seed, i)`.
    actions: (t, a), the actions taken.
    every: draw one step in so many, and the first and last states always.

  Returns:
    Frames, (f, height, width, 3), uint8.

  Raises:
    NoOpenGLError: if no library can draw; says why for each.
  """
  backends = (os.environ['MUJOCO_GL'],) if os.environ.get('MUJOCO_GL') else BACKENDS
  reasons = []
  for backend in backends:
    with workers.Workers([functools.partial(_artist, make_env, backend)]) as artist:
      try:
        artist.send(0, None)
        artist.receive(0)
      except RuntimeError as error:
        reasons.append(f'{backend}: {str(error).strip().splitlines()[-1]}')
        continue
      artist.send(0, (seed, actions, every))
      return artist.receive(0)
  raise NoOpenGLError('No OpenGL library can draw. ' + ' '.join(reasons))


def save_gif(path: str | os.PathLike, frames: np.ndarray, fps: float) -> None:
  """Writes frames as an animation that repeats.

  Args:
    path: the `.gif` to write.
    frames: (f, height, width, 3), uint8.
    fps: frames per second; the format rounds their duration to hundredths of a second.

  Raises:
    ValueError: if there is no frame.
    OSError: if the file cannot be written.
  """
  if len(frames) == 0:
    raise ValueError('A film needs at least one frame.')
  first, *rest = [Image.fromarray(frame).quantize(256) for frame in frames]
  with files.replacing(pathlib.Path(path)) as stream:
    first.save(stream, 'gif', save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)


def _artist(make_env: Callable[[], gymnasium.Env], backend: str) -> workers.Handler:
  os.environ['MUJOCO_GL'] = os.environ['PYOPENGL_PLATFORM'] = backend
  simulator = seeding.Simulator(make_env())

  def draw() -> np.ndarray:
    return np.asarray(simulator.env.unwrapped.render(), np.uint8)

  def handle(request: tuple[np.random.SeedSequence, np.ndarray, int] | None) -> np.ndarray:
    if request is None:
      simulator.reset(seeding.seed_sequence(0))
      return draw()
    seed, actions, every = request
    simulator.reset(seed)
    frames = [draw()]
    for t, action in enumerate(actions, start=1):
      simulator.step(action)
      if t % every == 0 or t == len(actions):
        frames.append(draw())
    return np.stack(frames)

  return handle
