"""Executes notebooks as a reader would, in this interpreter, from an empty directory."""

import asyncio
import os
import pathlib
import signal
import sys
import time

import nbclient
import nbformat
from ipykernel import kernelspec
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

ROOT = pathlib.Path(__file__).resolve().parents[2]


def execute(
  notebook: nbformat.NotebookNode, workdir: pathlib.Path, seconds: float = 120.0
) -> nbformat.NotebookNode:
  """Runs every cell of a notebook, in place.

  The kernel is this interpreter, whatever kernels the machine has installed. It finds the
  repository, starts in `workdir`, sees `TINY=1`, by which a notebook chooses its smallest config,
  and cannot reach a package index.

  Args:
    notebook: the notebook; its outputs are replaced.
    workdir: an empty directory for the kernel's files.
    seconds: time that the start and all cells together may take.

  Returns:
    The notebook.

  Raises:
    nbclient.exceptions.CellExecutionError: if a cell fails; the message holds its source and the
      traceback.
    nbclient.exceptions.CellTimeoutError: if the time is up; the message holds the cell's source.
  """
  cwd, jupyter = workdir / 'cwd', workdir / 'jupyter'
  cwd.mkdir()
  kernelspec.write_kernel_spec(str(jupyter / 'kernels' / 'here'))
  manager = AsyncKernelManager(
    kernel_name='here',
    kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(jupyter / 'kernels')]),
    connection_file=str(jupyter / 'connection.json'),
  )
  deadline = time.monotonic() + seconds
  client = nbclient.NotebookClient(
    notebook,
    km=manager,
    timeout_func=lambda _: max(1e-3, deadline - time.monotonic()),  # 0 would mean no limit
  )
  path = [str(ROOT), os.environ.get('PYTHONPATH', '')]
  environment = {
    **os.environ,
    'IPYTHONDIR': str(jupyter / 'ipython'),
    'MPLBACKEND': 'agg',
    'MUJOCO_GL': 'disabled',  # films take longer than all the rest
    'PATH': os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ['PATH']]),
    'PIP_NO_INDEX': '1',
    'PYTHONPATH': os.pathsep.join(filter(None, path)),
    'TINY': '1',
  }

  async def run() -> nbformat.NotebookNode:
    await manager.start_kernel(cwd=str(cwd), env=environment)
    process = manager.provisioner.process
    try:
      return await client.async_execute()
    finally:
      # nbclient leaves a kernel alone that it did not start: it ends here, whatever happened.
      if process.poll() is None:  # so its number is still its own
        os.killpg(process.pid, signal.SIGKILL)  # with all that the cells started
      process.wait()
      if client.kc is not None:
        client.kc.stop_channels()
      await manager.cleanup_resources()

  return asyncio.run(run())


def faults(notebook: nbformat.NotebookNode) -> list[str]:
  """Says what keeps a notebook from being committed.

  Args:
    notebook: the notebook as it is stored.

  Returns:
    A sentence for each fault: it is not valid nbformat, its first code cell holds no `pip install`,
    or an error is stored among its outputs.
  """
  try:
    nbformat.validate(notebook)
  except nbformat.ValidationError as error:
    return [f'not valid nbformat: {error}']
  code = [cell for cell in notebook.cells if cell.cell_type == 'code']
  found = []
  if not code or 'pip install' not in code[0].source:
    found.append('the first code cell does not say how to install')
  for number, cell in enumerate(code, start=1):
    if any(output.output_type == 'error' for output in cell.outputs):
      found.append(f'code cell {number} holds an error: {cell.source}')
  return found
