"""Traced. The operators of SBML's mathematics, with derivatives that are finite.

Truth values are 1 and 0. Where the derivative of an operator is not finite (x^½ at 0, 1/x at 0, an
overflow), zero stands for it, so that what `piecewise` does not choose leaves no NaN in a gradient.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special
from jax.custom_derivatives import SymbolicZero

Operator = Callable[..., Any]

AVOGADRO = 6.02214179e23  # of SBML Level 3, 2006 CODATA; Version 2 has not changed it


def table(numpy: bool) -> dict[str, Operator]:
  """Operators of one to three operands by name.

  Args:
    numpy: they work on NumPy's arrays and have no derivatives; on JAX's otherwise.

  Returns:
    Elementwise functions. Those whose names end in `_` have finite derivatives everywhere, those of
    the same name without it only where the function has.
  """
  xp: Any = np if numpy else jnp
  special: Any = scipy.special if numpy else jax.scipy.special
  truth = lambda condition: xp.where(condition, 1.0, 0.0)
  smooth: dict[str, Operator] = {
    'plus': lambda a, b: a + b,
    'minus': lambda a, b: a - b,
    'times': lambda a, b: a * b,
    'divide': lambda a, b: a / b,
    'negative': lambda a: -a,
    'abs': xp.abs,
    'exp': xp.exp,
    'sin': xp.sin,
    'cos': xp.cos,
    'tan': xp.tan,
    'sinh': xp.sinh,
    'cosh': xp.cosh,
    'tanh': xp.tanh,
    'arctan': xp.arctan,
    'arcsinh': xp.arcsinh,
    'min': xp.minimum,
    'max': xp.maximum,
  }
  singular: dict[str, Operator] = {
    'power': xp.power,
    'ln': xp.log,
    'log10': xp.log10,
    'sqrt': xp.sqrt,
    'arcsin': xp.arcsin,
    'arccos': xp.arccos,
    'arccosh': xp.arccosh,
    'arctanh': xp.arctanh,
    'factorial': lambda a: special.gamma(a + 1.0),
  }
  constant: dict[str, Operator] = {
    'floor': xp.floor,
    'ceiling': xp.ceil,
    'quotient': lambda a, b: xp.trunc(a / b),
    'eq': lambda a, b: truth(a == b),
    'neq': lambda a, b: truth(a != b),
    'lt': lambda a, b: truth(a < b),
    'leq': lambda a, b: truth(a <= b),
    'gt': lambda a, b: truth(a > b),
    'geq': lambda a, b: truth(a >= b),
    'and': lambda a, b: truth((a != 0) & (b != 0)),
    'or': lambda a, b: truth((a != 0) | (b != 0)),
    'xor': lambda a, b: truth((a != 0) ^ (b != 0)),
    'not': lambda a: truth(a == 0),
  }
  choice: dict[str, Operator] = {'piecewise': lambda c, a, b: xp.where(c != 0, a, b)}
  finite = (lambda f: f) if numpy else _with_finite_derivatives
  return {
    **smooth,
    **constant,
    **choice,
    **{name: finite(f) for name, f in singular.items()},
    **{f'{name}_': finite(f) for name, f in {**smooth, **singular}.items()},
    **{f'{name}_': f for name, f in {**constant, **choice}.items()},
  }


def _with_finite_derivatives(f: Operator) -> Operator:
  """The elementwise function f, with partial derivatives of zero where they are not finite."""
  g = jax.custom_jvp(f)

  def rule(primals, tangents):
    result = g(*primals)
    total = jnp.zeros_like(result)
    for i, tangent in enumerate(tangents):
      if isinstance(tangent, SymbolicZero):
        continue
      along = lambda x, i=i: f(*primals[:i], x, *primals[i + 1 :])
      _, partial = jax.jvp(along, (primals[i],), (jnp.ones_like(primals[i]),))
      total += jnp.where(jnp.isfinite(partial), partial, 0.0) * tangent
    return result, total

  g.defjvp(rule, symbolic_zeros=True)
  return g
