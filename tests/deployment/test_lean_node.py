"""What a node installs and imports: nothing of reports, studies, downloads or simulations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NEVER = ("cloudpickle", "plotly", "jinja2", "sklearn", "pooch", "pandas", "matplotlib", "torch", "amqtt")

NODE = """
import json, sys
import numpy as np
import sottovoce.cli.app, sottovoce.cli.commands.join
from sottovoce.config.experiment import parse
from sottovoce.deployment.node.build import make_member
from sottovoce.deployment.node.join import join
from sottovoce.models import Shard
from tests.deployment.wired import identity_of, roster_of
records = Shard(np.zeros((3, 8, 8, 1), np.float32), np.zeros(3, np.int64))
member, _ = make_member(
    parse(json.loads(sys.argv[1])), identity_of(0), roster_of(4), records, simulated=False, apart=False
)
print(json.dumps([name for name in {never} if sys.modules.get(name) is not None]))
"""


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "clip_norm": 0.5}, "aggregation": {"secure": "real"}},
    ],
    ids=["plain", "private and secure"],
)
def test_a_node_is_built_without_any_package_of_reports_and_simulations(tables: dict[str, Any]) -> None:
    base: dict[str, Any] = {
        "experiment": {"name": "lean", "rounds": 2},
        "data": {"source": "digits", "clients": 4},
        "model": {"name": "mlp"},
        "cohort": {"sample_rate": 1},
    }
    code = NODE.format(never=NEVER)

    ended = subprocess.run(
        [sys.executable, "-c", code, json.dumps(base | tables)], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == []
