"""Draw a statement as one page that prints well, needs no network and holds the statement itself as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.statement.statement import number, percent

_BEGIN: Final = '<script type="application/json" id="statement">'
_END: Final = "</script>"
_MARKS: Final = (b'id="statement"', b'"evidence"', b'"in_one_sentence"', b'"not_protected"', b"Privacy statement")
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #59616b; --line: #d0d7de; --mark: #f3f5f7;
  --bad: #a40e26; --good: #11632b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --paper: #14171a; --soft: #a3acb5; --line: #3a4149;
  --mark: #1f2429; --bad: #ff9aa8; --good: #7ee2a0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.6em; margin: 0 0 .3rem; } h2 { font-size: 1.12em; margin: 1.3rem 0 .4rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
.lead { font-size: 1.15em; background: var(--mark); border-left: 4px solid var(--line); padding: .7rem .9rem; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: .95em; }
th, td { text-align: left; vertical-align: top; padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { font-weight: 600; } tbody th { width: 11rem; overflow-wrap: normal; }
td.n, th.n { text-align: right; } td.n { white-space: nowrap; }
td.note { border-bottom-color: var(--line); padding-top: 0; } tr.noted td { border-bottom: 0; }
.scroll td, .scroll th { overflow-wrap: normal; } .scroll td:first-child { min-width: 6.5rem; }
.scroll td:nth-child(2) { min-width: 8rem; }
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.6rem; } .grid tbody th { width: 8.5rem; }
@media (max-width: 44rem) { .grid { grid-template-columns: 1fr; } }
.scroll { overflow-x: auto; } ul { margin: .3rem 0; padding-left: 1.2rem; } code { font-size: .9em; }
@media print { @page { margin: 14mm; } :root { --ink: #000; --paper: #fff; --soft: #444; --line: #bbb; --mark: #f3f5f7;
  --bad: #8a0016; --good: #0b4d20; } body { max-width: none; padding: 0; font-size: 8pt; line-height: 1.3; }
  tbody th { width: 9rem; }
  h2 { margin: .7rem 0 .2rem; } th, td { padding-top: .1rem; padding-bottom: .1rem; }
  h2 { break-after: avoid; } tr, .lead { break-inside: avoid; } .scroll { overflow: visible; } }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def statement_page(statement: Mapping[str, Any]) -> str:
    """Return the page of a statement."""
    simulated, private = statement["simulated"], statement["private"]
    trial = statement.get("trial", False)
    kind = "simulated" if simulated else "a trial on one machine" if trial else "deployed"
    label = f'<span class="{"good" if private and kind == "deployed" else "bad"}">' + (
        f"{kind}; {'differentially private' if private else 'not private'}"
        if kind == "deployed" or not private
        else f"{kind}: not private"
    )
    body = [
        f"<h1>Privacy statement: {_text(statement['name'])}</h1>",
        f"<p>{label}</span> <span class=soft>· written by sottovoce from the files of the run</span></p>",
        f'<p class="lead">{_text(statement["in_one_sentence"])}</p>',
        *_section("Against whom", _against(statement["against"]), _ODDS),
        *_section("Who is protected", _pairs(statement["unit_of_protection"])),
        *_section("What is not protected", _list(statement["not_protected"])),
        '<div class="grid">',
        *_section("What was asked", _pairs(statement["asked"])),
        *_section("Whose records", _pairs(statement["records"])),
        *_section("What left each site", _pairs(statement["left_each_site"])),
        *_section("Keys", f"<p>{_text(statement['keys'])}</p>"),
        *_section("Who signed", _pairs(statement["signed"])),
        *_section("What was attacked", _pairs(statement["audit"])),
        *_section("Quality", _pairs(statement["quality"])),
        *_section("Cost", _pairs(statement["cost"])),
        "</div>",
        *_section("Model card", _rows(statement["model_card"], "section", "value")),
        *_section(
            "Questions along the pyramid of NIST SP 800-226", _rows(statement["nist_sp_800_226"], "question", "answer")
        ),
        *_section("Fields of OpenDP's registry of deployments", _rows(statement["registry"], "field", "value")),
        *_section("Software", _pairs(statement["software"])),
        *_section("Digests", _pairs(statement["digests"] or {"digests": None}), _account(statement["ledger"])),
        *_section(
            "How to check this page",
            _list(statement["how_to_check"]),
            f"<p>Hash of the statement: <code>{_text(statement['hash'])}</code></p>",
        ),
    ]
    # "<" would end the script early; JSON has another way to write it.
    data = json.dumps(statement, ensure_ascii=True).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Privacy statement: {_text(statement['name'])}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n{_BEGIN}{data}{_END}\n</body>\n</html>\n"
    )


def claims_a_statement(path: Path) -> bool:
    """Tell whether a file has any of the marks of a statement, damaged or not."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return any(mark in content for mark in _MARKS)


def read_statement(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the statement that a file holds, and its page if it is one."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    page = None if text.lstrip().startswith("{") else text
    if page is not None:
        found = re.findall(re.escape(_BEGIN) + "(.*?)" + re.escape(_END), page, re.DOTALL)
        if len(found) != 1:
            raise InputError(f"{path} is no statement: it holds no statement as JSON, or more than one")
        text = found[0]
    try:
        statement = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no statement: {error}") from None
    if not isinstance(statement, dict) or "evidence" not in statement:
        raise InputError(f"{path} is no statement: it must be an object with evidence")
    if page is None and text != statement_text(statement):
        raise InputError(f"{path} is not written as statements are: keys that stand twice, blanks or other signs")
    return statement, page


def statement_text(statement: Mapping[str, Any]) -> str:
    """Return a statement as it is written to a file."""
    return json.dumps(statement, indent=2) + "\n"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_ODDS: Final = (
    '<p class="soft">All percentages are upper bounds, rounded up, and follow from epsilon and delta alone. '
    "<em>Right guesses</em>: somebody who held both for equally likely, and must decide whether the protected one took "
    "part. <em>Suspicion</em>: what a suspicion of 50 % (or 1 %) becomes when an attack accuses, for attacks that "
    "accuse at least 1 % of others wrongly. <em>Finds</em>: the share of participants that an attack finds if it "
    "wrongly accuses 1 % (or 0.1 %) of the others.</p>"
)


def _against(adversaries: Iterable[Mapping[str, Any]]) -> str:
    heads = ("who", "knows", "epsilon", "delta", "right guesses", "suspicion 50 %", "1 %", "finds at 1 %", "0.1 %")
    rows = []
    for each in adversaries:
        odds = each["odds"]
        suspicion, finds = odds["suspicion_becomes_at_most"], odds["attack_finds_at_most"]
        numbers = [
            number(each["epsilon"]),
            "—" if each["delta"] is None else f"{each['delta']:g}",
            *(percent(share) for share in (odds["right_guesses_at_most"], suspicion["0.5"], suspicion["0.01"])),
            *(percent(share) for share in (finds["0.01"], finds["0.001"])),
        ]
        cells = "".join(f'<td class="n">{_text(value)}</td>' for value in numbers)
        noted = ' class="noted"' if each["note"] else ""
        rows.append(f"<tr{noted}><td>{_text(each['who'])}</td><td>{_text(each['knows'])}</td>{cells}</tr>")
        if each["note"]:
            rows.append(
                f'<tr><td class="note" colspan="{len(heads)}"><span class="bad">{_text(each["note"])}</span></td></tr>'
            )
    head = "".join(f"<th{' class=n' if index > 1 else ''}>{_text(name)}</th>" for index, name in enumerate(heads))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _section(title: str, *parts: str) -> list[str]:
    return [f"<section><h2>{_text(title)}</h2>", *parts, "</section>"]


def _account(ledger: Mapping[str, Any] | None) -> str:
    return "" if ledger is None else f"<h2>Ledger of the server</h2>{_pairs(ledger)}"


def _pairs(record: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{_text(key.replace('_', ' '))}</th><td>{_value(value)}</td></tr>" for key, value in record.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _rows(records: Iterable[Mapping[str, Any]], key: str, value: str) -> str:
    rows = "".join(
        f"<tr><th>{_text(each[key])}</th><td>"
        + ('<span class="bad">not answered: the operator must</span>' if each[value] is None else _value(each[value]))
        + "</td></tr>"
        for each in records
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _list(items: Sequence[Any]) -> str:
    return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"


def _value(value: Any) -> str:
    """Return any JSON value as text of the page."""
    if value is None or value == []:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _text(f"{value:.6g}")
    if isinstance(value, int):
        return _text(f"{value:,}".replace(",", " "))
    if isinstance(value, Mapping):
        return "; ".join(f"{_text(key)}: {_value(item)}" for key, item in value.items())
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, float) for item in value):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    if isinstance(value, list):
        return _list(value) if all(isinstance(item, str) for item in value) else _text(json.dumps(value))
    return _text(value)


def _text(value: Any) -> str:
    return escape(str(value), quote=True)
