"""Draw the pictures of the documentation as SVG files that follow the reader's light or dark theme.

python docs/pictures/draw.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 12px; fill: #52606d }
  .box { fill: #f5f7fa; stroke: #9aa5b1 }
  .secret { fill: #e3f8f3; stroke: #199473 }
  .line { stroke: #3e4c59; stroke-width: 1.6; fill: none }
  .head { fill: #3e4c59 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb } .small { fill: #b0bac5 }
    .box { fill: #1f2933; stroke: #7b8794 } .secret { fill: #12352d; stroke: #3ebd93 }
    .line { stroke: #cbd2d9 } .head { fill: #cbd2d9 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, title: str, *lines: str, kind: str = "box", height: float = 0) -> str:
    """Return a box with a title and lines below it."""
    tall = height or 32 + 18 * len(lines)
    parts = [f'<rect x="{x}" y="{y}" width="{width}" height="{tall}" rx="8" class="{kind}"/>']
    parts.append(text(x + 12, y + 22, title, "title"))
    parts += [text(x + 12, y + 42 + 18 * index, line, "small") for index, line in enumerate(lines)]
    return "".join(parts)


def arrow(x1: float, y1: float, x2: float, y2: float, words: str = "") -> str:
    """Return a horizontal or vertical arrow with words above its middle."""
    line = f'<path d="M{x1} {y1} L{x2} {y2}" class="line" marker-end="url(#head)"/>'
    return line + (text((x1 + x2) / 2, (y1 + y2) / 2 - 7, words, "small", "middle") if words else "")


def picture(width: int, height: int, about: str, *parts: str) -> str:
    """Return a whole SVG file."""
    marker = '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f"<title>{escape(about)}</title>\n<style>{STYLE}</style>\n"
        f'<defs>{marker}<path d="M0 0 L10 5 L0 10 z" class="head"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def round_() -> str:
    """Return who sends what to whom in one private round."""
    clients = [
        box(
            10,
            10 + 92 * index,
            230,
            name,
            "trains on its own records;",
            "compresses, adds noise, masks",
            kind="secret",
        )
        for index, name in enumerate(("client 1", "client 2", "client n"))
    ]
    up = [arrow(242, 36 + 92 * index, 398, 36 + 92 * index, "masked update") for index in range(3)]
    down = [arrow(398, 62 + 92 * index, 242, 62 + 92 * index) for index in range(3)]
    return picture(
        880,
        352,
        "Clients send masked, noisy updates to the server, which opens only their sum and publishes the model",
        *clients,
        *up,
        *down,
        text(320, 80, "model", "small", "middle"),
        box(
            402,
            10,
            210,
            "server",
            "chooses whom to ask",
            "adds the masked updates",
            "opens the sum, nothing else",
            "improves the model",
            height=252,
        ),
        arrow(614, 120, 668, 120),
        box(
            672,
            60,
            198,
            "everyone else",
            "the model",
            "accuracy, bytes, epsilon",
            "a ledger of what was spent",
            height=120,
        ),
        text(10, 300, "a client sees the models", "small"),
        text(10, 320, "and is protected from the others:", "small"),
        text(10, 340, "epsilon_member", "title"),
        text(402, 300, "the server sees who took part", "small"),
        text(402, 320, "and the noisy sum:", "small"),
        text(402, 340, "epsilon_server", "title"),
        text(672, 300, "outsiders see the models", "small"),
        text(672, 320, "of all rounds:", "small"),
        text(672, 340, "epsilon", "title"),
    )


def ballots() -> str:
    """Return who sends what to whom with secret ballots."""
    return picture(
        880,
        230,
        "Clients send masked ballots to the server, which counts them together with a helper; both add noise",
        box(10, 10, 230, "each client", "trains on its own records;", "one bit a value: up or down", kind="secret"),
        arrow(242, 44, 398, 44, "masked ballot"),
        box(402, 10, 210, "server (leader)", "cannot read a ballot", "adds its noise"),
        arrow(470, 80, 470, 138),
        arrow(544, 138, 544, 80),
        text(560, 114, "count together, check each other", "small"),
        box(402, 142, 210, "helper", "another institution", "adds its noise"),
        arrow(614, 44, 668, 44),
        box(672, 10, 198, "the noisy count", "one vote a client and value,", "whatever bytes it sends"),
    )


PICTURES = {"round": round_, "ballots": ballots}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw(), encoding="utf-8")
