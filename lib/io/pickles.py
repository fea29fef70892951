"""Host. Plain data out of a pickle that a stranger may have made: it is read, never unpickled.

A pickle is a program. This reader follows the few opcodes that build dictionaries, lists, tuples,
texts, numbers and arrays (NumPy's and JAX's), imports nothing, calls nothing that a file names, and
refuses all else. The opcodes: https://docs.python.org/3/library/pickletools.html
"""

import enum
import math
import os
import pickletools
from typing import Any

import numpy as np

_MAX_OPCODES = 2**20  # a batch of CIFAR-10 has forty thousand
_MAX_DEPTH = 100
_MAX_RANK = 32
_MAX_MESSAGE = 200


class _Known(enum.Enum):
  """Everything that a pickle may name; where it calls one, what that would make is made here."""

  RECONSTRUCT = enum.auto()  # of an array, in two steps
  FROM_BUFFER = enum.auto()  # of an array, in one
  SCALAR = enum.auto()
  NDARRAY = enum.auto()
  DTYPE = enum.auto()
  ENCODE = enum.auto()  # protocol 2 has no bytes of Python 3, but texts that encode to them
  BYTES = enum.auto()  # likewise, where they are empty
  JAX_ARRAY = enum.auto()
  MAPPING = enum.auto()  # the dictionary that haiku had


class _Unset:
  """An array that has no values until its state has been read."""

  values: np.ndarray | None = None


class _Machine:
  """What opcodes work on, and what keeps it no larger than the file."""

  def __init__(self, size: int):
    self.stacks: list[list[Any]] = [[]]  # a mark begins a new one
    self.memo: dict[int, Any] = {}
    self.converted: dict[Any, Any] = {}  # bytes by texts and texts by bytes: none is made twice
    self.left = size  # bytes that arrays may still take, for each has its own in the file


_GLOBALS = {
  f'{numpy}.{name}': known
  for numpy in ('numpy.core', 'numpy._core')
  for name, known in {
    'multiarray _reconstruct': _Known.RECONSTRUCT,
    'multiarray scalar': _Known.SCALAR,
    'numeric _frombuffer': _Known.FROM_BUFFER,
  }.items()
} | {
  'numpy ndarray': _Known.NDARRAY,
  'numpy dtype': _Known.DTYPE,
  '_codecs encode': _Known.ENCODE,
  '__builtin__ bytes': _Known.BYTES,
  'jax._src.array _reconstruct_array': _Known.JAX_ARRAY,
  'jax._src.device_array reconstruct_device_array': _Known.JAX_ARRAY,  # before jax 0.4
  'haiku._src.data_structures FlatMapping': _Known.MAPPING,  # before haiku 0.0.10
}
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False, 'EMPTY_TUPLE': ()}
_DTYPES = {
  code: np.dtype(f'<{code}')
  for code in ('b1', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8')
}


def load(path: str | os.PathLike, max_bytes: int = 2**32) -> Any:
  """Reads what a file has pickled.

  Args:
    path: the file to read.
    max_bytes: the most that it may take.

  Returns:
    As `loads`.

  Raises:
    OSError: if the file cannot be opened.
    ValueError: as `loads`, or if the file is larger.
  """
  with open(path, 'rb') as stream:
    size = os.fstat(stream.fileno()).st_size
    if size > max_bytes:
      raise ValueError(f'{path}: takes {size} bytes, more than {max_bytes}.')
    return loads(str(path), stream.read(size))


def loads(place: str, content: bytes) -> Any:
  """Reads what bytes have pickled, of protocols 2 to 5 and of Python 2 and 3.

  Args:
    place: where they came from, for messages.
    content: the bytes. What is read takes no more memory than a small multiple of theirs.

  Returns:
    Dictionaries with texts as keys, lists, tuples, texts, bytes (Python 2's texts among them, but
    for keys), numbers, None, and arrays and scalars of NumPy, of integers, floats or bools in
    little-endian order; JAX's arrays as NumPy's. Arrays may be read-only, and none is copied.

  Raises:
    ValueError: naming the place and the byte: truncated, corrupt, too many opcodes, nested too
      deep or in itself, or anything but plain data.
  """
  machine = _Machine(len(content))
  offset: int | None = 0
  try:
    for count, (opcode, argument, start) in enumerate(pickletools.genops(content)):
      offset = start
      if count >= _MAX_OPCODES:
        raise ValueError(f'more than {_MAX_OPCODES} opcodes')
      if opcode.name == 'STOP':
        return _checked(_pop(machine))
      _step(opcode.name, argument, machine)
    raise ValueError('no end')
  except Exception as error:  # genops fails in many ways; messages show nothing nested
    message = str(error)[:_MAX_MESSAGE]
    raise ValueError(f'{place}: pickle near byte {offset}: {message}.') from error


def _step(name: str, argument: Any, machine: _Machine) -> None:
  """Follows one opcode."""
  match name:
    case 'PROTO' | 'FRAME':
      return
    case 'MARK':
      machine.stacks.append([])
      return
    case 'BINPUT' | 'LONG_BINPUT':
      machine.memo[argument] = _top(machine)
      return
    case 'MEMOIZE':
      machine.memo[len(machine.memo)] = _top(machine)
      return
    case 'APPEND' | 'APPENDS' | 'SETITEM' | 'SETITEMS':
      single = {'APPEND': 1, 'SETITEM': 2}.get(name)
      items = _above_mark(machine) if single is None else _pop_many(machine, single)
      if name.startswith('APPEND'):
        _extend(_top(machine), items)
      else:
        _update(_top(machine), items, machine)
      return
    case 'BUILD':
      state = _pop(machine)
      value: Any = _build(_pop(machine), state, machine)
    case 'NONE' | 'NEWTRUE' | 'NEWFALSE' | 'EMPTY_TUPLE':
      value = _CONSTANTS[name]
    case (
      'BININT' | 'BININT1' | 'BININT2' | 'LONG1' | 'BINFLOAT'
      | 'BINUNICODE' | 'SHORT_BINUNICODE' | 'BINUNICODE8'
      | 'BINBYTES' | 'SHORT_BINBYTES' | 'BINBYTES8' | 'BYTEARRAY8'
    ):  # fmt: skip
      value = argument
    case 'BINSTRING' | 'SHORT_BINSTRING':
      value = argument.encode('latin-1')  # Python 2 had only bytes
    case 'EMPTY_DICT':
      value = {}
    case 'EMPTY_LIST':
      value = []
    case 'TUPLE':
      value = tuple(_above_mark(machine))
    case 'TUPLE1' | 'TUPLE2' | 'TUPLE3':
      value = tuple(_pop_many(machine, int(name[-1])))
    case 'BINGET' | 'LONG_BINGET':
      if argument not in machine.memo:
        raise ValueError(f'nothing was noted as {argument}')
      value = machine.memo[argument]
      if isinstance(value, _Unset) and value.values is not None:
        value = value.values
    case 'GLOBAL':
      value = _named(argument)
    case 'STACK_GLOBAL':
      module_and_name = _pop_many(machine, 2)
      if any(type(text) is not str for text in module_and_name):
        raise ValueError('a name is no text')
      value = _named(' '.join(module_and_name))
    case 'REDUCE':
      arguments = _pop(machine)
      value = _reduce(_pop(machine), arguments, machine)
    case _:
      raise ValueError(f'opcode {name} is not read')
  machine.stacks[-1].append(value)


def _named(name: str) -> _Known:
  if name not in _GLOBALS:
    raise ValueError(f'names {name[:80]!r}, which no plain data need')
  return _GLOBALS[name]


def _reduce(function: Any, arguments: Any, machine: _Machine) -> Any:
  """What a call would have made, of those that are known."""
  match function, arguments:
    case _Known.RECONSTRUCT, (_Known.NDARRAY, (0,), b'b'):
      return _Unset()
    case _Known.DTYPE, (str() | bytes() as code, 0 | 1, 0 | 1):
      text = code.decode('latin-1') if isinstance(code, bytes) else code
      if text not in _DTYPES:
        raise ValueError(f'dtype {text[:80]!r} is not read')
      return _DTYPES[text]
    case _Known.FROM_BUFFER, (raw, dtype, shape, 'C' | 'F' as order):
      return _array(raw, dtype, shape, order, machine)
    case _Known.FROM_BUFFER, (raw, dtype, shape, 'C' | 'F' as order, None):
      return _array(raw, dtype, shape, order, machine)
    case _Known.FROM_BUFFER, (raw, dtype, shape, 'K', tuple() as axes):
      return _array(raw, dtype, shape, 'C', machine).transpose(axes)
    case _Known.SCALAR, (dtype, raw):
      return _array(raw, dtype, (), 'C', machine)[()]
    case _Known.JAX_ARRAY, (_Known.RECONSTRUCT as inner, inner_arguments, state, dict()):
      return _build(_reduce(inner, inner_arguments, machine), state, machine)
    case _Known.ENCODE, (str() as text, 'latin1'):
      if text not in machine.converted:
        machine.converted[text] = text.encode('latin-1')
      return machine.converted[text]
    case _Known.BYTES, ():
      return b''
    case _Known.MAPPING, (dict() as mapping,):
      return mapping
  raise ValueError('calls something else than what makes an array of numbers')


def _build(target: Any, state: Any, machine: _Machine) -> Any:
  """Returns the target with its state."""
  if isinstance(target, np.dtype):
    match state:
      case (3, str() | bytes() as order, None, None, None, -1, -1, 0):
        text = order.decode('latin-1') if isinstance(order, bytes) else order
        if text == target.str[0]:
          return target
        raise ValueError(f'order {text[:80]!r} of bytes of {target} is not read')
    raise ValueError(f'the state of {target} is not one of numbers')
  if not isinstance(target, _Unset) or target.values is not None:
    raise ValueError('sets the state of something else than an array')
  match state:
    case (1, shape, dtype, bool() | int() as fortran, bytes() as raw):
      target.values = _array(raw, dtype, shape, 'F' if fortran else 'C', machine)
      return target.values
  raise ValueError('the state of an array is not one of numbers')


def _array(raw: Any, dtype: Any, shape: Any, order: Any, machine: _Machine) -> np.ndarray:
  """An array on bytes, of which it takes all."""
  if not isinstance(dtype, np.dtype) or type(raw) not in (bytes, bytearray):
    raise ValueError('an array is not one of numbers')
  if type(shape) is not tuple or len(shape) > _MAX_RANK:
    raise ValueError(f'the shape of an array is no tuple of {_MAX_RANK} at most')
  if any(type(n) is not int for n in shape) or min(shape, default=0) < 0:
    raise ValueError('the shape of an array is not of whole numbers')
  if math.prod(shape) * dtype.itemsize != len(raw):
    raise ValueError(f'an array of shape {shape} of {dtype} does not take the bytes that it has')
  machine.left -= len(raw)
  if machine.left < 0:
    raise ValueError('arrays take more bytes than the file has')
  if dtype == np.bool_ and raw.translate(None, b'\0\1'):
    raise ValueError('an array of bools holds something else')
  return np.frombuffer(raw, dtype).reshape(shape, order=order)


def _extend(target: Any, items: list[Any]) -> None:
  if type(target) is not list:
    raise ValueError('appends to what is no list')
  target.extend(items)


def _update(target: Any, items: list[Any], machine: _Machine) -> None:
  """Sets items; keys are texts alone, for numbers of equal hashes would take for ever."""
  if type(target) is not dict or len(items) % 2:
    raise ValueError('sets items of what is no dict, or a key without a value')
  for key, value in zip(items[::2], items[1::2], strict=True):
    if type(key) not in (bytes, str):
      raise ValueError('a key is no text')
    text = key
    if isinstance(key, bytes):
      if key not in machine.converted:
        machine.converted[key] = key.decode('latin-1')
      text = machine.converted[key]
    if text in target:
      raise ValueError(f'key {text[:80]!r} is given twice')
    target[text] = value


def _checked(value: Any) -> Any:
  """Refuses what is nested too deep, or in itself, and what is left of names and arrays."""
  depths: dict[int, int | None] = {}  # by identity; None while on the way to the leaves
  todo = [(value, False)]
  while todo:
    node, done = todo.pop()
    if isinstance(node, _Unset | _Known | np.dtype):
      raise ValueError('holds what is no plain data')
    if type(node) not in (dict, list, tuple):
      continue
    inner = node.values() if type(node) is dict else node
    if done:
      depths[id(node)] = depth = 1 + max((depths.get(id(x)) or 0 for x in inner), default=0)
      if depth > _MAX_DEPTH:
        raise ValueError(f'nested deeper than {_MAX_DEPTH}')
    elif id(node) not in depths:
      depths[id(node)] = None
      todo.append((node, True))
      todo.extend((x, False) for x in inner)
    elif depths[id(node)] is None:
      raise ValueError('nested in itself')
  return value


def _top(machine: _Machine) -> Any:
  if not machine.stacks[-1]:
    raise ValueError('the stack is empty')
  return machine.stacks[-1][-1]


def _pop(machine: _Machine) -> Any:
  value = _top(machine)
  machine.stacks[-1].pop()
  return value


def _pop_many(machine: _Machine, count: int) -> list[Any]:
  return [_pop(machine) for _ in range(count)][::-1]


def _above_mark(machine: _Machine) -> list[Any]:
  if len(machine.stacks) < 2:
    raise ValueError('there is no mark')
  return machine.stacks.pop()
