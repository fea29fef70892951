"""Traced. Expressions as one graph without repetitions, evaluated on scalars or in batches.

A node is a number, one of the inputs, or an operator of `operators.table` on other nodes. Equal
nodes are one node, so that what function definitions repeat is computed once. Small graphs are
evaluated node by node, which compilers fuse; in large ones the nodes of one operator that do not
depend on each other are one operation on a vector, which keeps programs short.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lib.sbml import operators

Function = Callable[[Any, Any, Any], Any]

_MAX_NODES = 2**17  # the largest curated model of BioModels has fewer than 2**15
_MAX_SCALARS = 400  # nodes of a graph that is evaluated one by one
_MAX_DENSE = 2**14  # entries of a matrix that is not kept sparse
_NUMPY_TABLE = operators.table(numpy=True)
_JAX_TABLE = operators.table(numpy=False)


class Node(NamedTuple):
  """An operator on nodes that come before it, or a leaf.

  Attributes:
    operator: of the table, or `number`, `time`, `state`, `constant`.
    operands: indices of nodes; the index of a state or constant; the value of a number.
  """

  operator: str
  operands: tuple


class Graph:
  """Nodes in the order in which they were added, so that operands come first."""

  def __init__(self) -> None:
    self.nodes: list[Node] = []
    self._indices: dict[Any, int] = {}

  def add(self, operator: str, *operands: Any) -> int:
    """The index of a node, which is added if there is none like it.

    Raises:
      ValueError: if the graph grows out of bounds.
    """
    node = Node(operator, operands)
    # 0.0 == -0.0 and NaN != NaN, but as text numbers are equal when they are the same.
    key = (operator, repr(operands)) if operator == 'number' else node
    if key not in self._indices:
      if len(self.nodes) >= _MAX_NODES:
        raise ValueError(f'the mathematics has more than {_MAX_NODES} operations.')
      self._indices[key] = len(self.nodes)
      self.nodes.append(node)
    return self._indices[key]

  def number(self, value: float) -> int:
    """The node of a number."""
    return self.add('number', float(value))

  def value(self, node: int) -> float | None:
    """The value of a number's node; None of others."""
    found = self.nodes[node]
    return found.operands[0] if found.operator == 'number' else None

  def tree(self, operator: str, nodes: Sequence[int]) -> int:
    """Folds at least one node by an associative operator into a tree of little depth."""
    level = list(nodes)
    while len(level) > 1:
      pairs = [self.add(operator, *level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
      level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]

  def power(self, base: int, exponent: int) -> int:
    """base^exponent, by multiplication where the exponent is a small whole number."""
    n = self.value(exponent)
    if n is None or not math.isfinite(n) or n != int(n) or not 1 <= abs(n) <= 8:
      return self.add('power', base, exponent)
    result = self.tree('times', [base] * int(abs(n)))
    return result if n > 0 else self.add('divide', self.number(1.0), result)

  def reachable(self, outputs: Sequence[int]) -> list[int]:
    """The nodes that outputs are made of, sorted."""
    seen = set(outputs)
    stack = list(seen)
    while stack:
      node = self.nodes[stack.pop()]
      for operand in node.operands if is_operation(node) else ():
        if operand not in seen:
          seen.add(operand)
          stack.append(operand)
    return sorted(seen)

  def function(self, outputs: Sequence[int]) -> Function:
    """A function of time, states and constants.

    Args:
      outputs: nodes.

    Returns:
      `f(t, y [D], c [P]) -> [len(outputs)]`. Given NumPy arrays, it computes with NumPy.
    """
    nodes = self.reachable(outputs)
    operations = [i for i in nodes if is_operation(self.nodes[i])]
    guarded = self._guarded(nodes)
    names = {i: self.nodes[i].operator + '_' * (i in guarded) for i in operations}
    if len(operations) <= _MAX_SCALARS:
      traced = self._by_scalars(nodes, names, outputs)
    else:
      traced = self._by_groups(nodes, names, outputs)
    host = self._by_scalars(nodes, names, outputs)

    def function(t: Any, y: Any, c: Any) -> Any:
      if all(isinstance(x, float | np.ndarray) for x in (t, y, c)):
        with np.errstate(all='ignore'):
          return host(_NUMPY_TABLE, np, t, y, c)
      if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError('SBML needs double precision: call this under jax.enable_x64().')
      return traced(_JAX_TABLE, jnp, t, y, c)

    return function

  def _guarded(self, nodes: Sequence[int]) -> set[int]:
    """Nodes whose values a piecewise may not choose: their derivatives must be finite."""
    result: set[int] = set()
    for i in reversed(nodes):
      node = self.nodes[i]
      if not is_operation(node):
        continue
      if node.operator == 'piecewise' or i in result:
        result.update(node.operands)
    return result

  def _by_scalars(self, nodes, names, outputs):
    def evaluate(table, xp, t, y, c):
      leaves = {'time': [t], 'state': list(y), 'constant': list(c)}
      values: dict[int, Any] = {}
      for i in nodes:
        operator, operands = self.nodes[i]
        if i in names:
          values[i] = table[names[i]](*(values[j] for j in operands))
        elif operator == 'number':
          values[i] = xp.asarray(operands[0], np.float64)
        else:
          values[i] = leaves[operator][operands[0] if operands else 0]
      return xp.stack([xp.asarray(values[i]) for i in outputs]) if outputs else xp.zeros(0)

    return evaluate

  def _by_groups(self, nodes, names, outputs):
    depths: dict[int, int] = {}
    groups: dict[tuple[int, str], list[int]] = {}
    leaves: dict[str, list[int]] = {'number': [], 'time': [], 'state': [], 'constant': []}
    for i in nodes:
      if i in names:
        depths[i] = 1 + max(depths[j] for j in self.nodes[i].operands)
        groups.setdefault((depths[i], names[i]), []).append(i)
      else:
        depths[i] = 0
        leaves[self.nodes[i].operator].append(i)
    numbers = np.array([self.nodes[i].operands[0] for i in leaves['number']], np.float64)
    state, constant = (
      np.array([self.nodes[i].operands[0] for i in leaves[kind]], np.int32)
      for kind in ('state', 'constant')
    )
    order = [i for kind in leaves for i in leaves[kind]]
    start = len(order)
    schedule = []
    for key in sorted(groups):
      order += groups[key]
    places = {i: place for place, i in enumerate(order)}
    for key in sorted(groups):
      members = groups[key]
      operands = np.array([[places[j] for j in self.nodes[i].operands] for i in members], np.int32)
      schedule.append((key[1], start, operands.T))
      start += len(members)
    chosen = np.array([places[i] for i in outputs], np.int32)

    def evaluate(table, xp, t, y, c):
      time = jnp.reshape(jnp.asarray(t, np.float64), (1,))[: len(leaves['time'])]
      first = jnp.concatenate([jnp.asarray(numbers), time, y[state], c[constant]])
      values = jnp.concatenate([first, jnp.zeros(len(order) - len(first), first.dtype)])
      for name, offset, operands in schedule:
        result = table[name](*(values[places] for places in operands))
        values = jax.lax.dynamic_update_slice(values, result, (offset,))
      return values[chosen]

    return evaluate


def is_operation(node: Node) -> bool:
  """Whether a node is no leaf."""
  return node.operator not in ('number', 'time', 'state', 'constant')


def sparse_product(
  rows: Sequence[int], columns: Sequence[int], weights: Sequence[float], num_rows: int
) -> Callable[[Any], Any]:
  """The product with a sparse matrix, whose entries at one place add up.

  Args:
    rows: of the entries.
    columns: of the entries.
    weights: the entries.
    num_rows: of the matrix.

  Returns:
    `product(v [columns]) -> [num_rows]`, of NumPy's or JAX's arrays.
  """
  order = np.argsort(np.asarray(rows, np.int32), kind='stable')
  at_rows, at_columns = (np.asarray(x, np.int32)[order] for x in (rows, columns))
  values = np.asarray(weights, np.float64)[order]

  def product(v: Any) -> Any:
    if isinstance(v, np.ndarray):
      return np.bincount(at_rows, values * v[at_columns], num_rows).astype(np.float64)
    if num_rows * v.shape[0] > _MAX_DENSE:
      return jax.ops.segment_sum(values * v[at_columns], at_rows, num_rows, indices_are_sorted=True)
    matrix = np.zeros((num_rows, v.shape[0]))
    np.add.at(matrix, (at_rows, at_columns), values)
    return jnp.matmul(jnp.asarray(matrix), v, precision=jax.lax.Precision.HIGHEST)

  return product
