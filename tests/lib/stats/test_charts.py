"""Tests of lib.stats.charts."""

import io

import numpy as np
from absl.testing import absltest, parameterized
from matplotlib import figure

from lib.stats import charts


def make_curves(num_metrics: int, methods=('a', 'b'), num_steps: int = 3, num_seeds: int = 2):
  rng = np.random.default_rng(0)
  return {
    f'score_{metric}': {
      method: {10 * step: rng.normal(size=num_seeds) for step in range(num_steps)}
      for method in methods
    }
    for metric in range(num_metrics)
  }


def labels(drawing: figure.Figure) -> list[str]:
  return [text.get_text() for legend in drawing.legends for text in legend.get_texts()]


def thick(axis) -> dict:
  """Returns a panel's labelled lines."""
  return {line.get_label(): line for line in axis.get_lines() if line.get_label()[0] != '_'}


class LearningCurvesTest(parameterized.TestCase):
  @parameterized.product(num_metrics=[1, 2, 3, 4, 7], columns=[1, 3])
  def test_a_panel_a_metric(self, num_metrics, columns):
    drawing = charts.learning_curves(make_curves(num_metrics), columns)
    self.assertTrue(all(axis.get_visible() for axis in drawing.axes))
    titles = [axis.get_title() for axis in drawing.axes]
    self.assertEqual(titles, [f'score {metric}' for metric in range(num_metrics)])
    for axis in drawing.axes:
      self.assertCountEqual(thick(axis), ['a', 'b'])
    self.assertEqual(labels(drawing), ['a', 'b'])

  @parameterized.product(num_steps=[1, 3], num_seeds=[1, 4])
  def test_mean_and_seeds(self, num_steps, num_seeds):
    curves = make_curves(1, num_steps=num_steps, num_seeds=num_seeds)
    drawing = charts.learning_curves(curves)
    drawing.savefig(io.BytesIO(), dpi=20)  # and it can be drawn
    (axis,) = drawing.axes
    self.assertLen(axis.get_lines(), 2 * (num_seeds + 1))
    for method, line in thick(axis).items():
      values = np.stack(list(curves['score_0'][method].values()))
      np.testing.assert_array_equal(line.get_xdata(), 10 * np.arange(num_steps))
      np.testing.assert_allclose(line.get_ydata(), values.mean(axis=1))
      thin = [other for other in axis.get_lines() if other.get_color() == line.get_color()][:-1]
      np.testing.assert_array_equal(np.stack([x.get_ydata() for x in thin], axis=1), values)

  def test_one_number_without_an_axis_of_seeds(self):
    (axis,) = charts.learning_curves({'loss': {'a': {0: 1.0, 5: 0.5}}}).axes
    np.testing.assert_array_equal(thick(axis)['a'].get_ydata(), [1.0, 0.5])

  def test_steps_rise_whatever_their_order(self):
    (axis,) = charts.learning_curves({'loss': {'a': {20: [3.0], 0: [1.0], 10: [2.0]}}}).axes
    np.testing.assert_array_equal(thick(axis)['a'].get_xdata(), [0, 10, 20])
    np.testing.assert_array_equal(thick(axis)['a'].get_ydata(), [1, 2, 3])

  def test_a_method_looks_the_same_in_all_panels(self):
    methods = [f'method_{number}' for number in range(12)]
    curves = make_curves(3, methods, num_steps=1, num_seeds=1)
    del curves['score_0']['method_0'], curves['score_1']['method_7'], curves['score_2']['method_11']
    drawing = charts.learning_curves(curves)
    self.assertCountEqual(labels(drawing), methods)
    style = lambda line: (line.get_color(), line.get_linestyle())
    looks = {m: {style(thick(a)[m]) for a in drawing.axes if m in thick(a)} for m in methods}
    self.assertTrue(all(len(look) == 1 for look in looks.values()))
    self.assertLen(set.union(*looks.values()), 12)  # and unlike the others
    (legend,) = drawing.legends
    for handle, name in zip(legend.get_lines(), labels(drawing), strict=True):
      self.assertEqual({style(handle)}, looks[name])


if __name__ == '__main__':
  absltest.main()
