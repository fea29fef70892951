"""A transformer in plain NumPy, float64, one row and one head at a time: what the tests trust."""

import numpy as np


def forward(arch, params, tokens, layers=None):
  """Returns logits (T, V), the streams before each layer and at the end, and attention rows."""
  wide = lambda x: np.asarray(x, np.float64)
  x = wide(params['embed'])[tokens]
  streams, rows = [], []
  for i in range(arch.num_layers) if layers is None else layers:
    w = {name: wide(value[i]) for name, value in params['layers'].items()}
    streams.append(x)
    y = norm(x, w['attention_norm'], arch.norm_eps)
    group = arch.num_heads // arch.num_kv_heads
    mixed, seen = [], []
    for head in range(arch.num_heads):
      q, k, v = (
        project(arch, w, name, y, head if name == 'q' else head // group) for name in 'qkv'
      )
      scores = q @ k.T / np.sqrt(arch.head_dim)
      for t in range(len(tokens)):
        low = 0 if arch.window is None else max(0, t - arch.window + 1)
        scores[t, :low] = scores[t, t + 1 :] = -np.inf
      e = np.exp(scores - scores.max(axis=1, keepdims=True))
      a = e / e.sum(axis=1, keepdims=True)
      seen.append(a)
      mixed.append(a @ v)
    rows.append(np.stack(seen))
    x = x + np.concatenate(mixed, axis=1) @ w['o'].T
    y = norm(x, w['mlp_norm'], arch.norm_eps)
    gate = y @ w['gate'].T
    x = x + (gate / (1 + np.exp(-gate)) * (y @ w['up'].T)) @ w['down'].T
  streams.append(x)
  y = norm(x, wide(params['norm']), arch.norm_eps)
  head = wide(params['embed'] if arch.tied else params['head'])
  return y @ head.T, np.stack(streams), np.stack(rows)


def norm(x, gain, eps):
  return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * gain


def project(arch, w, name, y, head):
  part = slice(head * arch.head_dim, (head + 1) * arch.head_dim)
  z = y @ w[name][part].T
  if arch.qkv_bias:
    z = z + w[f'{name}_bias'][part]
  if name == 'v':
    return z
  if arch.qk_norm:
    z = norm(z, w[f'{name}_norm'], arch.norm_eps)
  half = arch.head_dim // 2
  out = np.empty_like(z)
  for i in range(half):
    a, b = (2 * i, 2 * i + 1) if arch.rope_interleaved else (i, i + half)
    angle = np.arange(len(z)) * arch.rope_base ** (-2 * i / arch.head_dim)
    out[:, a] = z[:, a] * np.cos(angle) - z[:, b] * np.sin(angle)
    out[:, b] = z[:, b] * np.cos(angle) + z[:, a] * np.sin(angle)
  return out
