"""Tests compile fast, for they ask for no speed of what the compiler makes, and run alike."""

import atexit
import os
import shutil
import tempfile

import hypothesis

# Before jax is imported, here and in the processes that tests start. The workers of one run share
# their programs.
os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = '1'
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
  cache = tempfile.mkdtemp()
  atexit.register(shutil.rmtree, cache, ignore_errors=True)
  os.environ['JAX_COMPILATION_CACHE_DIR'] = cache
os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
os.environ['JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES'] = 'none'

# The same examples in every run, however busy the machine: a suite that fails says something.
hypothesis.settings.register_profile('steady', derandomize=True, deadline=None)
hypothesis.settings.load_profile('steady')
