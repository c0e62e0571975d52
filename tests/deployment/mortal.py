"""Be `sottovoce serve` or `sottovoce join` in a process of its own that ends by SIGKILL at a phase of a secure sum.

python -m tests.deployment.mortal PLACE serve|join ...

PLACE is "never", "PHASE" for a node (before its first answer of that phase leaves) or "ROUND PHASE" for a server
(before it asks for that phase). A node writes down in the file DIARY which masked vectors leave. A server begins no
round before all nodes are there, so that who is missing is known.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

from sottovoce.federation.engine import Reply, Request
from sottovoce.federation.engines.mqtt.engine import MqttEngine
from sottovoce.federation.engines.mqtt.envelope import Kind, kind_of, phase_of

PATIENCE = 120.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal_server(place: str) -> None:
    """Let this process's server wait for all of its nodes, and die before it asks for a phase."""
    send = MqttEngine.send

    def sent(engine: MqttEngine, request: Request) -> Reply:
        until = time.monotonic() + PATIENCE
        while request.phase == "advertise" and engine.status.there < engine.status.nodes:
            if time.monotonic() > until:
                raise AssertionError(f"round {request.round}: {engine.status.there} nodes are there")
            time.sleep(0.01)
        if f"{request.round} {request.phase}" == place:
            die()
        return send(engine, request)

    MqttEngine.send = sent  # type: ignore[method-assign]


def mortal_node(place: str) -> None:
    """Let this process's node die before its first answer of a phase leaves."""
    from sottovoce.federation.engines.mqtt.transport import Transport

    publish = Transport.publish

    def published(carrier: Transport, topic: str, message: bytes, *, patience: float = 0.0) -> bool:
        phase = phase_of(message) if kind_of(message) == Kind.ANSWER else ""
        if phase == place:
            die()
        if phase == "mask":
            with Path(os.environ["DIARY"]).open("a", encoding="ascii") as diary:
                diary.write(hashlib.sha256(message).hexdigest() + "\n")
        return publish(carrier, topic, message, patience=patience)

    Transport.publish = published  # type: ignore[method-assign]


if __name__ == "__main__":
    place, command = sys.argv[1:3]
    sys.argv[1:] = sys.argv[2:]
    (mortal_server if command == "serve" else mortal_node)(place)
    from sottovoce.cli import main

    sys.exit(main())
