"""Tests of simulation and events: closed forms, libroadrunner, gradients."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized

from lib.sbml import simulate
from tests.lib.sbml import toys

TS = np.linspace(0.0, 5.0, 11)
DECAY = toys.parts(
  species={'A': {'amount': 4.0}}, parameters={'k': 0.5}, reactions={'R': ({'A': 1}, {}, 'k*A')}
)
ROBERTSON = toys.parts(
  species={'A': {'amount': 1.0}, 'B': {'amount': 0.0}, 'C': {'amount': 0.0}},
  reactions={
    'R1': ({'A': 1}, {'B': 1}, '0.04*A'),
    'R2': ({'B': 2}, {'B': 1, 'C': 1}, '3e7*B^2'),
    'R3': ({'B': 1, 'C': 1}, {'A': 1, 'C': 1}, '1e4*B*C'),
  },
)
# Prey and predators, of which half are taken away when they are many.
HUNTED = toys.parts(
  species={'A': {'amount': 2.0}, 'B': {'amount': 1.0}},
  parameters={'k': 1.0, 'h': 1.6},
  reactions={
    'R1': ({}, {'A': 1}, 'A'),
    'R2': ({'A': 1}, {'B': 1}, 'k*A*B'),
    'R3': ({'B': 1}, {}, 'B'),
  },
  events=[{'trigger': 'B > h', 'assign': {'B': 'B/2'}}],
)
HUNTERS = np.array([1.0, 0.8, 1.3])  # rates, each with another number of these events


def event(trigger, early=True, **rest):
  assign = {key: rest.pop(key) for key in ('A', 'n', 'm', 'V', 'k') if key in rest}
  return {'trigger': trigger, 'assign': assign, 'early': early, **rest}


# The parameters n and m at the time 5 that follow from SBML's rules by hand.
CASES = {
  'at a time': ([event('time >= 2.2', n='A')], 2.2, 0),
  'at an output': ([event('time >= 2', n='n + 1')], 1, 0),
  'at one time only': ([event('time == 2.2', n='A')], 2.2, 0),
  'of a state': ([event('A > 1.7', n='time')], 1.7, 0),
  'again and again': ([event('A >= h', A='0', n='n + 1')], 7, 0),
  'in a short time': ([event('time > 2 && time < 2.001', n='n + 1')], 1, 0),
  'not at first': ([event('A < 3', n='1')], 0, 0),
  'at first': ([event('A < 3', n='1', initial=False)], 1, 0),
  'delayed': ([event('time > 1', n='A', delay='1.5', early=False)], 2.5, 0),
  'delayed, of the trigger': ([event('time > 1', n='A', delay='1.5')], 1.0, 0),
  'too late': ([event('time > 4', n='1', delay='1.5')], 0, 0),
  'cancelled': (
    [event('A > 1 && A < 2', n='1', delay='1.5', persistent=False)],
    0,
    0,
  ),
  'persistent': ([event('A > 1 && A < 2', n='1', delay='1.5')], 1, 0),
  'several wait': (
    [event('A >= 0.5', A='0'), event('A >= 0.4', n='n + 1', delay='1', early=False)],
    8,
    0,
  ),
  'a cascade': ([event('time > 1', n='1'), event('n > 0.5', m='n + 1')], 1, 2),
  'by priority': (
    [
      event('time > 1', n='2*n + 1', priority='1', early=False),
      event('time > 1', n='10*(n + 1)', priority='2', early=False),
    ],
    21,
    0,
  ),
  'by order': (
    [event('time > 1', n='2*n + 1', early=False), event('time > 1', n='10*(n + 1)', early=False)],
    20,
    0,
  ),
  'of the trigger, whatever comes before': (
    [event('time > 1', n='5'), event('time > 1', m='n')],
    5,
    0,
  ),
  'at once': ([event('time > 1', n='A', A='n + 3')], 1, 0),
  'xor and not': ([event('xor(A > 1, A > 2)', n='n + 1'), event('not(A < 3)', m='m + 1')], 1, 1),
  'on and off': ([event('sin(2*A) > 0.5', n='n + 1')], 2, 0),
  'at rest on its threshold': (
    [event('A >= 0.3', A='0', n='n + 0.01'), event('abs(n) > m', m='abs(n)')],
    0.16,
    0.16,
  ),
  'piecewise': ([event('piecewise(A > 1, time < 2, A > 3)', n='n + 1')], 2, 0),
}


class SimulateTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.enterContext(jax.enable_x64(True))

  def test_decay_its_batches_and_gradients(self):
    compiled = toys.compiled(**DECAY)
    k = compiled.names.constants.index('k')
    rates = np.array([0.1, 0.5, 2.0])
    constants = np.tile(compiled.c, (3, 1))
    constants[:, k] = rates

    def last(y0, c):
      ys, ok = simulate.simulate(compiled, TS, y0, c, rtol=1e-8, atol=1e-10)
      return ys[-1, 0], (ys, ok)

    run = jax.jit(jax.vmap(jax.grad(last, (0, 1), has_aux=True), (None, 0)))
    (of_y0, of_c), (ys, ok) = run(compiled.y0, constants)
    self.assertTrue(ok.all())
    self.assertEqual(ys.dtype, np.float64)
    np.testing.assert_allclose(ys[:, :, 0], 4 * np.exp(-rates[:, None] * TS), atol=1e-5)
    np.testing.assert_allclose(of_y0[:, 0], np.exp(-5 * rates), atol=1e-6)
    np.testing.assert_allclose(of_c[:, k], -5 * 4 * np.exp(-5 * rates), atol=1e-5)

  def test_a_stiff_system_agrees_with_libroadrunner_and_keeps_its_mass(self):
    text = toys.document(**ROBERTSON)
    compiled = toys.compiled(**ROBERTSON)
    ts = np.array([0.0, 0.4, 40.0, 4000.0])
    run = jax.jit(lambda y0: simulate.simulate(compiled, ts, y0, compiled.c, 1e-8, 1e-12, 2000))
    ys, ok = run(compiled.y0)
    self.assertTrue(ok)
    np.testing.assert_allclose(ys, toys.course(text, ts, 'ABC'), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(ys.sum(axis=1), 1.0, atol=1e-9)
    explosion = -1e3 * compiled.y0  # B is negative, and its square drives it on
    ys, ok = run(explosion)
    self.assertFalse(ok)
    self.assertTrue(np.isnan(ys[-1]).all())

  def test_a_model_without_states(self):
    compiled = toys.compiled(species={'A': {'amount': 1.0}})
    ys, ok = simulate.simulate(compiled, TS, compiled.y0, compiled.c)
    self.assertEqual((ys.shape, bool(ok)), ((len(TS), 0), True))

  @parameterized.parameters({'rtol': 0.0}, {'atol': -1.0}, {'max_steps': 0}, {'max_events': 0})
  def test_refuses(self, **options):
    compiled = toys.compiled(**DECAY)
    with self.assertRaisesRegex(ValueError, 'must be positive'):
      simulate.simulate(compiled, TS, compiled.y0, compiled.c, **options)

  def test_events(self):
    """All cases are one model, whose parts do not see each other, for programs compile slowly."""
    parameters, rates, events = {'h': 0.7}, {}, []
    for i, (case, _, _) in enumerate(CASES.values()):
      names = {x: f'{x}{i}' for x in ('A', 'n', 'm')}
      parameters |= dict.fromkeys(names.values(), 0.0)
      rates[names['A']] = '1'
      events += [_renamed(e, names) for e in case]
    compiled = toys.compiled(parameters=parameters, rates=rates, events=events)
    run = jax.jit(lambda y0, c: simulate.simulate(compiled, TS, y0, c, 1e-6, 1e-9, max_events=300))
    ys, ok = run(compiled.y0, compiled.c)
    self.assertTrue(ok)
    found = dict(zip(compiled.names.states, ys.T, strict=True))
    for i, (name, (_, n, m)) in enumerate(CASES.items()):
      self.assertAlmostEqual(float(found.get(f'n{i}', [0.0])[-1]), n, places=6, msg=name)
      self.assertAlmostEqual(float(found.get(f'm{i}', [0.0])[-1]), m, places=6, msg=name)
    np.testing.assert_array_equal(found['n1'], TS >= 2.0)  # the event at an output
    too_many = np.where(np.array(compiled.names.constants) == 'h', 0.01, compiled.c)
    _, ok = run(compiled.y0, too_many)
    self.assertFalse(ok)

  def test_a_batch_with_state_events_is_a_loop_and_agrees_with_libroadrunner(self):
    one, batch = (jax.jit(f(self.hunted())) for f in (lambda run: run, jax.vmap))
    ys, ok = batch(HUNTERS)
    self.assertTrue(ok.all())
    np.testing.assert_allclose(ys, [one(h)[0] for h in HUNTERS], rtol=1e-8)
    np.testing.assert_allclose(ys[0], toys.course(toys.document(**HUNTED), TS, 'AB'), rtol=1e-6)

  @pytest.mark.slow
  def test_gradients_through_state_events_are_differences(self):
    last = lambda k: self.hunted()(k)[0][-1].sum()
    one, batch = jax.jit(last), jax.jit(jax.vmap(jax.grad(last)))
    differences = [(one(k + 1e-5) - one(k - 1e-5)) / 2e-5 for k in HUNTERS]
    np.testing.assert_allclose(batch(HUNTERS), differences, rtol=1e-4)

  @pytest.mark.slow
  def test_an_event_at_a_threshold_keeps_amounts_and_its_time_has_a_gradient(self):
    compiled = toys.compiled(
      compartments={'V': 1.0},
      species={'A': {'amount': 4.0}},
      parameters={'k': 0.5},
      reactions={'R': ({'A': 1}, {}, 'k*A')},
      events=[event('A < 1', V='2', k='0')],
    )
    a = compiled.names.states.index('A')

    def last(k):
      y0 = jnp.asarray(compiled.y0).at[compiled.names.states.index('k')].set(k)
      ys, _ = simulate.simulate(compiled, TS[[0, -1]], y0, compiled.c, 1e-8, 1e-10, max_events=3)
      return ys[-1]

    ys = jax.jit(last)(0.5)
    found = toys.observed(compiled, 5.0, np.asarray(ys))
    self.assertAlmostEqual(found['A'], 1.0, places=5)
    self.assertAlmostEqual(found['[A]'], 0.5, places=5)
    # The decay ends at the threshold, however fast it is.
    self.assertAlmostEqual(float(jax.jit(jax.grad(lambda k: last(k)[a]))(0.5)), 0.0, places=4)

  def hunted(self):
    """The course of the prey and their hunters as a function of the rate of hunting."""
    compiled = toys.compiled(**HUNTED)
    k = compiled.names.constants.index('k')
    run = functools.partial(simulate.simulate, rtol=1e-9, atol=1e-11, max_events=12)
    return lambda rate: run(compiled, TS, compiled.y0, jnp.asarray(compiled.c).at[k].set(rate))


def _renamed(case, names):
  new = lambda text: re.sub(r'\b[Anm]\b', lambda match: names[match.group()], text)
  formulas = {key: new(case[key]) for key in ('trigger', 'delay', 'priority') if key in case}
  assign = {names[key]: new(value) for key, value in case['assign'].items()}
  return {**case, **formulas, 'assign': assign}
