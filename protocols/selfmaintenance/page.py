"""Advice as a page for a reader."""

import textwrap
from collections.abc import Iterable, Iterator

from protocols.selfmaintenance.advice import Advice, StoredPart
from protocols.selfmaintenance.sizes import Sizes

_WIDTH = 100


def page(advice: Advice) -> str:
    """The whole page."""
    sections = (
        (f"View {advice.view.name}", advice.view.sql.strip().splitlines()),
        ("Auxiliary views", [line for part in advice.parts for line in _stored(part)]),
        ("How changes reach the view", _changes(advice)),
        ("Rows", _rows(advice)),
        ("Relied on", _items(advice.relied_on)),
        ("Not relied on", _items(advice.not_relied_on)),
        ("What would make it smaller", _items(advice.hints)),
    )
    texts = []
    for heading, lines in sections:
        indented = [f"  {line}".rstrip() for line in lines]
        if indented:
            texts.append("\n".join([heading, *indented]))
    return "\n\n".join(texts) + "\n"


def _stored(part: StoredPart) -> Iterator[str]:
    name = part.relations if len(part.vertex.atoms) > 1 else _named(part)
    verdict = "nothing is stored, since" if part.keep == "none" else "needed,"
    yield from _item(f"{name}: {verdict} {part.because}")
    for sql in (part.sql,) if part.sql is not None else ():
        yield from (f"  {line}" for line in sql.splitlines())
    for number, sql in enumerate(part.instead):
        yield "  or instead:" if number == 0 else ""
        yield from (f"  {line}" for line in sql.splitlines())
    yield ""


def _named(part: StoredPart) -> str:
    (atom,) = part.vertex.atoms
    alias = "" if atom.alias == atom.relation.name else f" {atom.alias}"
    return f"{part.relations}{alias}"


def _changes(advice: Advice) -> Iterator[str]:
    wide = max(len(f"{each.change} {each.vertex}") for each in advice.expressions)
    for each in advice.expressions:
        yield f"{f'{each.change} {each.vertex}':<{wide}}  {each.text}"


def _rows(advice: Advice) -> Iterator[str]:
    """The paper's Table 1: the relation, what passes its local conditions, what is stored."""
    if all(part.sizes is None for part in advice.parts):
        return
    table = [(_named_all(part), part.sizes) for part in advice.parts]
    table.append(("Total", advice.total))
    wide = max(len(name) for name, _ in table)
    yield f"{'':<{wide}}  {'relation':>15}  {'local conditions':>16}  {'auxiliary view':>15}"
    for name, sizes in table:
        yield f"{name:<{wide}}  {_cells(sizes)}"


def _cells(sizes: Sizes | None) -> str:
    if sizes is None:
        return f"{'?':>15}  {'?':>16}  {'?':>15}"
    return f"{sizes.base:>15,}  {sizes.local:>16,}  {sizes.auxiliary:>15,}"


def _named_all(part: StoredPart) -> str:
    return part.relations if len(part.vertex.atoms) > 1 else _named(part)


def _items(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _item(text)


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
