"""Execute the notebooks of docs/notebooks, each in an empty folder, and write them with their outputs for the site.

usage: .ci/notebooks.py [NAME ...]
A cell that fails ends it with exit code 1. The site shows what was written to docs/notebooks/*.ipynb.
"""

import sys
import tempfile
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HOME = Path(__file__).parents[1] / "docs" / "notebooks"
LIMIT = 300  # seconds a cell

for source in sorted(HOME.glob("*.py")):
    if sys.argv[1:] and source.stem not in sys.argv[1:]:
        continue
    notebook = jupytext.read(source)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            sys.exit(f"{source.name}: {error}")
    failed = [
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "error: " in output.get("text", "")  # a shell command that fails does not end a cell
    ]
    if failed:
        sys.exit(f"{source.name}: {failed[0]}")
    jupytext.write(notebook, source.with_suffix(".ipynb"), fmt="ipynb")
    print(f"{source.name}: {time.monotonic() - start:.0f} s", flush=True)
