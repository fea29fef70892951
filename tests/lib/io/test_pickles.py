"""Tests of lib.io.pickles."""

import io
import os
import pathlib
import pickle
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import pickles

RNG = np.random.default_rng(0)
ARRAYS = {
  'matrix': RNG.normal(size=(3, 4)).astype(np.float32),
  'columns': np.asfortranarray(RNG.normal(size=(3, 4))),
  'turned': RNG.normal(size=(2, 3, 4)).transpose(1, 0, 2),
  'strided': RNG.integers(0, 9, (6, 4))[::2],
  'single': np.array(2, np.int32),
  'empty': np.zeros((0, 3), np.float16),
  'deep': RNG.integers(0, 2, (1, 2, 1, 3, 1)).astype(bool),
  **{
    f'of_{code}': np.arange(4).astype(code) for code in ('i1', 'i2', 'i8', 'u1', 'u2', 'u4', 'u8')
  },
}
PLAIN = {
  'numbers': [0, -1, 255, 65535, 2**31 - 1, -(2**31), 2**80, -(2**80), 1.5, -0.0, float('inf')],
  'constants': (None, True, False, (), [], {}),
  'texts': ['', 'ä', '漢' * 100, 'x' * 300, b'', b'\xff', b'y' * 300],
  'tuples': ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
}
PROTOCOLS = (2, 3, 4, 5)


class _Reduced:
  """Is pickled as a call."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


class _Foreign(pickle._Pickler):
  """Writes names that modules of this machine need not have."""

  def save_global(self, obj, name=None):
    if isinstance(obj, _Global):
      self.write(f'c{obj.module}\n{obj.name}\n'.encode())
    else:
      super().save_global(obj, name)


class _Global:
  def __init__(self, module, name):
    self.module, self.name = module, name

  def __call__(self):
    raise AssertionError

  def __reduce__(self):
    return self.name  # a text: what follows is a name


def _foreign(value) -> bytes:
  stream = io.BytesIO()
  _Foreign(stream, 4).dump(value)
  return stream.getvalue()


def _same(found, expected):
  """Asserts that values, types and dtypes are the same."""
  if isinstance(expected, np.ndarray | np.generic):
    np.testing.assert_array_equal(found, expected)
    assert (type(found), found.dtype, found.shape) == (
      type(expected),
      expected.dtype,
      expected.shape,
    )
  elif isinstance(expected, dict):
    assert type(found) is dict
    assert list(found) == list(expected)
    for name in expected:
      _same(found[name], expected[name])
  elif isinstance(expected, list | tuple):
    assert type(found) is type(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
      _same(one, other)
  else:
    assert type(found) is type(expected)
    assert repr(found) == repr(expected)


ARRAY = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
MINUS_ONE = b'J\xff\xff\xff\xff'
DTYPE = b'cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN' + 2 * MINUS_ONE + b'K\x00tb'
HUGE = b'J\xff\xff\xff\x7f'


class PicklesTest(parameterized.TestCase):
  def refused(self, content: bytes, message: str):
    with self.assertRaisesRegex(ValueError, rf'^a\.pkl: pickle near byte \d+: .*{message}'):
      pickles.loads('a.pkl', content)

  @parameterized.parameters(*PROTOCOLS)
  def test_plain_data_come_back(self, protocol):
    for value in (PLAIN, *PLAIN.values(), 1, 'text'):
      _same(pickles.loads('', pickle.dumps(value, protocol)), value)
    many = {str(i): [i] for i in range(3000)}  # several lots
    _same(pickles.loads('', pickle.dumps(many, protocol)), many)

  @parameterized.product(protocol=PROTOCOLS, old=[True, False])
  def test_arrays_come_back(self, protocol, old):
    shared = ARRAYS | {'again': [ARRAYS['matrix'], ARRAYS['empty']]}
    content = pickle.dumps(shared, protocol)
    if old:  # as NumPy 1 names its modules
      for part in (b'multiarray', b'numeric'):
        new, name = b'numpy._core.' + part, b'numpy.core.' + part
        content = content.replace(
          bytes([len(new)]) + b'\0\0\0' + new, bytes([len(name)]) + b'\0\0\0' + name
        )
        content = content.replace(
          b'\x8c' + bytes([len(new)]) + new, b'\x8c' + bytes([len(name)]) + name
        )
        content = content.replace(b'c' + new + b'\n', b'c' + name + b'\n')
      self.assertNotIn(b'_core', content)
    found = pickles.loads('', content)
    _same(found, shared)
    self.assertIs(found['again'][0], found['matrix'])
    self.assertEqual(b'_frombuffer' in content, protocol == 5)

  @parameterized.parameters(*PROTOCOLS)
  def test_scalars_come_back(self, protocol):
    scalars = [np.float32(1.5), np.int64(-3), np.bool_(True), np.float16(0.5), np.uint8(7)]
    _same(pickles.loads('', pickle.dumps(scalars, protocol)), scalars)

  @parameterized.parameters(*PROTOCOLS)
  def test_arrays_of_jax_come_back_as_arrays(self, protocol):
    arrays = {
      'x': jnp.arange(6.0).reshape(2, 3),
      'count': jnp.array(3),
      'y': jnp.ones((2, 2), bool),
    }
    expected = {name: np.asarray(x) for name, x in arrays.items()}
    _same(pickles.loads('', pickle.dumps(arrays, protocol)), expected)

  @parameterized.parameters(
    ('jax._src.array', '_reconstruct_array'),
    ('jax._src.device_array', 'reconstruct_device_array'),
  )
  def test_arrays_of_older_jax_come_back(self, module, name):
    x = ARRAYS['matrix']
    state = {'weak_type': False, 'named_shape': {}}  # which newer ones fail on
    content = _foreign({'x': _Reduced(_Global(module, name), *x.__reduce__(), state)})
    _same(pickles.loads('', content), {'x': x})

  def test_mappings_of_haiku_come_back_as_dictionaries(self):
    mapping = _Global('haiku._src.data_structures', 'FlatMapping')
    inner = {'w': ARRAYS['matrix'], 'b': ARRAYS['single']}
    content = _foreign({'p': _Reduced(mapping, {'linear': _Reduced(mapping, inner)})})
    _same(pickles.loads('', content), {'p': {'linear': inner}})

  def test_a_file_is_read_up_to_a_limit(self):
    path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), 'a.pkl')
    path.write_bytes(pickle.dumps(PLAIN))
    size = path.stat().st_size
    _same(pickles.load(path, max_bytes=size), PLAIN)
    with self.assertRaisesRegex(ValueError, rf'a\.pkl: takes {size} bytes, more than'):
      pickles.load(path, max_bytes=size - 1)
    path.write_bytes(path.read_bytes()[:-1])
    with self.assertRaisesRegex(ValueError, r'/a\.pkl: pickle near byte \d+'):
      pickles.load(path)
    with self.assertRaises(FileNotFoundError):
      pickles.load(path.with_name('b.pkl'))

  @parameterized.product(protocol=[*range(pickle.HIGHEST_PROTOCOL + 1)], inside=[True, False])
  def test_code_is_not_run(self, protocol, inside):
    marker = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), 'marker')
    evil = _Reduced(os.system, f'touch {marker}')
    content = pickle.dumps({'x': [evil, ARRAYS]} if inside else evil, protocol)
    self.refused(content, 'system' if protocol > 1 else '')
    self.assertFalse(marker.exists())
    self.assertIn(b'system', content)

  @parameterized.parameters(
    (1j, 'names'),
    ({1, 2}, 'opcode EMPTY_SET is not read'),
    ({1: 2}, 'a key is no text'),
    (np.array([None]), "dtype 'O8' is not read"),
    (np.array(['text']), "dtype 'U4' is not read"),
    (np.zeros(2, 'f4,i4'), "dtype 'V8' is not read"),
    (np.zeros(2, 'c8'), "dtype 'c8' is not read"),
    (np.zeros(2, '>f4'), "order '>' of bytes of float32 is not read"),
    (np.float32, 'names'),
    (np.ndarray, 'no plain data'),
    (np.dtype('f4'), 'no plain data'),
  )
  def test_other_data_are_refused(self, value, message):
    for protocol in PROTOCOLS:
      self.refused(pickle.dumps([value], protocol), message if protocol > 3 else '')

  @parameterized.parameters(
    'os\nsystem', 'builtins\neval', '__builtin__\neval', 'builtins\ngetattr', 'numpy\nload',
    'numpy\nndarray.tofile', 'numpy.core.multiarray _reconstruct\n', 'jax\ndevice_put',
    'numpy.random._pickle\n__randomstate_ctor', 'numpy.core\nmultiarray _reconstruct.x',
  )  # fmt: skip
  def test_other_globals_are_refused(self, name):
    self.refused(b'\x80\x02c' + name.encode() + b'\n.', 'names')
    module, _, attribute = name.partition('\n')
    texts = b''.join(b'\x8c' + bytes([len(x)]) + x.encode() for x in (module, attribute))
    self.refused(b'\x80\x04' + texts + b'\x93.', 'names')

  @parameterized.parameters(
    (b'', ''),
    (b'.', 'stack is empty'),
    (b'\x80\x02}', ''),
    (b']e.', 'no mark'),
    (b'(.', 'stack is empty'),
    (b'K\x01K\x02a.', 'appends to what is no list'),
    (b'](K\x01u.', 'no dict'),
    (b'}(K\x01u.', 'without a value'),
    (b'}](K\x01e]s.', 'a key is no text'),
    (b'}U\x01aNsU\x01aNs.', "key 'a' is given twice"),
    (b'}U\x01aNsX\x01\0\0\0aNs.', "key 'a' is given twice"),
    (b'h\x07.', 'nothing was noted as 7'),
    (b'q\x07.', 'stack is empty'),
    (b'\x94.', 'stack is empty'),
    (b'K\x01\x8c\x01a\x93.', 'a name is no text'),
    (b'cnumpy\nndarray\nK\x00\x85R.', 'calls something else'),
    (b'cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.', "dtype 'O' is not read"),
    (b'cnumpy\ndtype\nU\x02u1\x85R.', 'calls something else'),
    (b'U\x01aU\x01b\x86R.', 'the stack is empty'),
    (b'U\x01aU\x01bR.', 'calls something else'),
    (b'c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0utf-8\x86R.', 'calls something else'),
    (b'c_codecs\nencode\nX\x03\0\0\0\xe2\x82\xacX\x06\0\0\0latin1\x86R.', ''),
    (b'c__builtin__\nbytes\n' + HUGE + b'\x85R.', 'calls something else'),
    (b'}Nb.', 'sets the state of something else'),
    (b'cnumpy\nndarray\n}b.', 'sets the state of something else'),
    (DTYPE[:-2] + b'\x85b.', ''),
    (DTYPE[:-2] + b'Ntb.', 'the state of uint8 is not one'),
    (DTYPE + b'.', 'no plain data'),
    (ARRAY + b'.', 'no plain data'),
    (ARRAY + b'\x85.', 'no plain data'),
    (ARRAY + b'q\0(K\x01K\x01\x85' + DTYPE + b'\x89U\x01atbh\0(K\x01K\x01\x85' + DTYPE
     + b'\x89U\x01atb.', 'sets the state of something else'),
    (ARRAY + b'(K\x01K\x01K\x01\x86cnumpy\ndtype\n\x89U\x01atb.', 'not one of numbers'),
    (ARRAY + b'(K\x01K\x01\x88\x86' + DTYPE + b'\x89U\x01atb.', 'whole numbers'),
    (ARRAY + b'(K\x01' + b'K\x01' + DTYPE + b'\x89U\x01atb.', 'no tuple'),
    (ARRAY + b'(K\x01(' + b'K\x01' * 33 + b't' + DTYPE + b'\x89U\x01atb.', 'no tuple of 32'),
    (ARRAY + b'(K\x01K\x01K\x02\x86' + DTYPE + b'\x89U\x01atb.', 'does not take the bytes'),
    (ARRAY + b'(K\x01' + 2 * MINUS_ONE + b'\x86' + DTYPE + b'\x89U\x01atb.', 'whole numbers'),
    (ARRAY + b'(K\x01' + 3 * HUGE + b'\x87' + DTYPE + b'\x89U\x01atb.', 'does not take the bytes'),
    (ARRAY + b'(K\x01K\x01\x85' + DTYPE + b'\x89]tb.', 'not one of numbers'),
    (ARRAY + b'(K\x01K\x01\x85' + DTYPE.replace(b'u1', b'b1') + b'\x89U\x01\x02tb.', 'bools'),
    (b'cjax._src.array\n_reconstruct_array\n(cos\nsystem\n)N}tR.', 'names'),
    (b'cjax._src.array\n_reconstruct_array\n(c_codecs\nencode\n)N}tR.', 'calls something else'),
    (b'cnumpy.core.numeric\n_frombuffer\n(B\x02\0\0\0ab' + DTYPE + b'K\x02\x85X\1\0\0\0KK\1\x85tR.',
     ''),
    (b'chaiku._src.data_structures\nFlatMapping\n]\x85R.', 'calls something else'),
    (b'(lp0\n.', 'opcode LIST is not read'),
    (b'(ios\nsystem\n.', 'opcode INST is not read'),
    (b'(cos\nsystem\no.', 'names'),
    (b'cnumpy\nndarray\n)\x81.', 'opcode NEWOBJ is not read'),
    (b'\x82\x01.', 'opcode EXT1 is not read'),
    (b'N\x51.', 'opcode BINPERSID is not read'),
    (b'\x97.', 'opcode NEXT_BUFFER is not read'),
    (b']q\0h\0a.', 'nested in itself'),
    (b'}q\0U\1a]h\0as.', 'nested in itself'),
    (b'N' + b'\x85' * 101 + b'.', 'nested deeper than 100'),
    (b']' + b']' * 20_000 + b'a' * 20_000 + b'.', 'nested deeper than 100'),
    (b'(' * 20_000 + b'K\x01' + b't' * 20_000 + b'R.', 'stack is empty'),
    (b'T\xff\xff\xff\x7fabc', ''),
    (b'\x8e' + b'\xff' * 7 + b'\x7fabc.', ''),
    (b'\x8a\xff\x01.', ''),
    (b'c' + b'a' * 100_000 + b'\nb\n.', 'names'),
    (b'\x80\x04\x95' + b'\xff' * 8, ''),
  )  # fmt: skip
  def test_malformed_pickles_are_refused(self, content, message):
    self.refused(content, message)

  def test_a_hundred_deep_is_read(self):
    self.assertEqual(repr(pickles.loads('', b']' * 100 + b'a' * 99 + b'.')), '[' * 100 + ']' * 100)

  def test_what_is_shared_is_not_nested(self):
    content, shared = b'N', 30  # pairs of the same, whose leaves are 2³⁰
    for i in range(shared):
      content += b'q%ch%c\x86' % (i, i)
    found = pickles.loads('', content + b'.')
    for _ in range(shared):
      self.assertIs(found[0], found[1])
      found = found[0]
    self.assertIsNone(found)

  def test_nothing_in_the_file_is_made_twice(self):
    text = (1000).to_bytes(4, 'little') + b'x' * 1000
    again = b'h\0h\1R'
    encode = b'c_codecs\nencode\nq\0X' + text + b'X\6\0\0\0latin1\x86q\1R'
    found = pickles.loads('', b'](' + encode + again * 50 + b'e.')
    self.assertEqual(([*map(len, found)], len({*map(id, found)})), ([1000] * 51, 1))
    found = pickles.loads('', b'](B' + text + b'q\0' + b'}h\0Ns' * 50 + b'e.')
    keys = [key for x in found[1:] for key in x]
    self.assertEqual(([*map(len, keys)], len({*map(id, keys)})), ([1000] * 50, 1))
    array = b'cnumpy.core.numeric\n_frombuffer\nq\0(B' + text + DTYPE
    array += b'M\xe8\3\x85X\1\0\0\0Ctq\1R'
    self.assertLen(pickles.loads('', b'](' + array + b'e.')[0], 1000)
    self.refused(b'](' + array + again + b'e.', 'arrays take more bytes than the file')

  def test_opcodes_are_counted(self):
    with mock.patch.object(pickles, '_MAX_OPCODES', 1000):
      self.refused(b'N' * 1000 + b'.', 'more than 1000 opcodes')

  def test_every_truncation_is_refused(self):
    for content in (pickle.dumps(ARRAYS | PLAIN, 2), pickle.dumps(ARRAYS | PLAIN, 5)):
      for end in range(0, len(content), 7):
        self.refused(content[:end], '')

  @settings(max_examples=150, deadline=None)
  @given(st.data())
  def test_damaged_pickle_is_refused_or_plain(self, data):
    some = {name: ARRAYS[name] for name in ('columns', 'turned', 'single')}
    value = some | {'text': 'a', 'jax': jnp.arange(3), 'of': [1, (2.5, None)]}
    content = bytearray(pickle.dumps(value, data.draw(st.sampled_from(PROTOCOLS))))
    for _ in range(data.draw(st.integers(1, 3))):
      place = data.draw(st.integers(0, max(len(content) - 1, 0)))
      end = data.draw(st.sampled_from([place, place + 1, len(content)]))
      content[place:end] = data.draw(st.binary(max_size=2))
    try:
      found = pickles.loads('a.pkl', bytes(content))
    except ValueError as error:
      self.assertStartsWith(str(error), 'a.pkl: pickle near byte ')
    else:
      for leaf in jax.tree.leaves(found):
        self.assertIsInstance(leaf, (np.ndarray, np.generic, int, float, str, bytes, bytearray))


if __name__ == '__main__':
  absltest.main()
