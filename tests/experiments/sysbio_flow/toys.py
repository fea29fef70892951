"""Small models and series for the tests."""

import numpy as np

from experiments.sysbio_flow import data

DECAY = """<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level2/version4" level="2" version="4">
 <model id="decay">
  <listOfCompartments><compartment id="c" size="1"/></listOfCompartments>
  <listOfSpecies>
   <species id="A" compartment="c" initialConcentration="{start}"/>
   <species id="B" compartment="c" initialConcentration="0"/>
  </listOfSpecies>
  <listOfParameters><parameter id="k" value="{rate}"/></listOfParameters>
  <listOfReactions>
   <reaction id="r" reversible="false">
    <listOfReactants><speciesReference species="A"/></listOfReactants>
    <listOfProducts><speciesReference species="B"/></listOfProducts>
    <kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">
     <apply><times/><ci>k</ci><ci>A</ci><ci>c</ci></apply>
    </math></kineticLaw>
   </reaction>
  </listOfReactions>
 </model>
</sbml>
"""


def decay(start: float = 2.0, rate: float = 0.3) -> bytes:
  """A turns into B at a rate, from a concentration."""
  return DECAY.format(start=start, rate=rate).encode()


def split(context: np.ndarray, future: np.ndarray, system: np.ndarray) -> data.Split:
  """Series of systems, ascending."""
  _, first, count = np.unique(system, return_index=True, return_counts=True)
  integers = [np.asarray(x, np.int32) for x in (system, first, count, np.zeros(len(system)))]
  return data.Split(context.astype(np.float32), future.astype(np.float32), *integers)


def waves(count: int, length: int = 32, horizon: int = 24, seed: int = 0) -> data.Split:
  """Sines of four cycles in a context, two series a system."""
  rng = np.random.default_rng(seed)
  phase, size = rng.uniform(0, 2 * np.pi, (2 * count, 1)), rng.uniform(0.5, 2, (2 * count, 1))
  values = size * np.sin(2 * np.pi * np.arange(length + horizon) / 8 + phase)
  return split(values[:, :length], values[:, length:], np.repeat(np.arange(count), 2))
