"""Oblivious transfer: 128 base transfers by public keys, and from them any number by symmetric cryptography.

`base` makes the 128, `extension` the many; `bits` and `tweaked` are what the extension is made of.
"""

from sottovoce.secagg.ot.base import BaseReceiver, BaseSender
from sottovoce.secagg.ot.extension import ExtensionReceiver, ExtensionSender

__all__ = ["BaseReceiver", "BaseSender", "ExtensionReceiver", "ExtensionSender"]
