"""Be an amqtt broker over TLS: port, authority, certificate and key are the arguments."""

from __future__ import annotations

import asyncio
import sys


async def _serve(port: str, authority: str, certificate: str, key: str) -> None:
    from amqtt.broker import Broker

    config = {
        "listeners": {
            "default": {
                "type": "tcp",
                "bind": f"127.0.0.1:{port}",
                "ssl": True,
                "cafile": authority,
                "certfile": certificate,
                "keyfile": key,
            }
        },
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    broker = Broker(config)
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:5]))
