"""The explanation of a view as a page for a reader, from top to bottom."""

import textwrap
from collections.abc import Iterable, Iterator

from protocols.analysis.drawing import (
    as_text,
    maintenance_drawing,
    reduced_drawing,
    subsumption_drawing,
)
from protocols.analysis.outerjoins import BlockAnalysis, UpdateAnalysis
from protocols.analysis.wording import listed
from protocols.explaining.asked import Rounds
from protocols.explaining.costs import Kind, QuestionCost, RelationCosts
from protocols.explaining.explanation import Explanation

_WIDTH = 100


def page(found: Explanation) -> str:
    """The whole page."""
    sections = (
        ("", found.view.sql.strip().splitlines()),
        ("Tree", found.picture.lines()),
        ("Kept by", _kept_by(found)),
        ("Questions", _questions(found)),
        ("Remembered", _items(map(str, found.memories))),
        ("Outer joins", _outer_joins(found)),
        ("Foreign keys", _foreign_keys(found)),
        ("Keys", _items([str(found.keys)])),
        ("Bound columns and safety", _safety(found)),
        ("What would make it cheaper", _items(found.advice)),
    )
    texts = []
    for heading, lines in sections:
        indented = [f"  {line}".rstrip() for line in lines]
        if indented:
            texts.append("\n".join([heading or _title(found), *indented]))
    return "\n\n".join(texts) + "\n"


def _title(found: Explanation) -> str:
    spoken = f", in the dialect {found.view.dialect}" if found.view.dialect else ""
    return f"View {found.view.name}{spoken}"


def _kept_by(found: Explanation) -> Iterator[str]:
    sources = found.view.sources
    places = f"{len(sources)} source{'s' if len(sources) > 1 else ''} ({', '.join(sources)})"
    yield from _item(f"It is made of: {found.made_of}; over {places}.")
    levels: dict[str, list[str]] = {}
    for entry in found.protocols:
        levels.setdefault(entry.level.name, []).append(entry.name)
    for level, names in levels.items():
        yield from _item(f"{level}: {', '.join(names)}")


# -- questions -------------------------------------------------------------------------------------


def _questions(found: Explanation) -> Iterator[str]:
    yield from _item(
        "The most per update: with nothing remembered, as after a restart → with everything."
        " Questions joined by + go out together; an answer without rows saves those after it."
    )
    for each in found.costs.relations:
        yield ""
        yield from _of_relation(each)
    batch = found.costs.batch
    yield ""
    yield from _item(
        f"questions of a batch of any size, by batched-sweep: {_arrow(batch.numbers)}"
        + _with_nulls(batch)
    )


def _of_relation(costs: RelationCosts) -> Iterator[str]:
    """Writes kinds of equal cost as one."""
    yield str(costs.relation)
    alike: dict[tuple[Rounds, Rounds], list[Kind]] = {}
    for kind, each in costs.kinds.items():
        alike.setdefault((each.first, each.remembered), []).append(kind)
    for kinds in alike.values():
        told = "any update" if len(kinds) == len(costs.kinds) else listed(list(kinds))
        cost = max((costs.kinds[kind] for kind in kinds), key=lambda each: each.most)
        yield from _item(f"{told}: {_arrow(cost.numbers)}{_with_nulls(cost)}", "  ")
        yield from _ways(cost)
    for spared in costs.spared:
        yield from _item(f"{spared}: none", "  ")


def _ways(cost: QuestionCost) -> Iterator[str]:
    if cost.first == cost.remembered:
        yield from _rounds(cost.first, "asked")
    else:
        yield from _rounds(cost.first, "first")
        yield from _rounds(cost.remembered, "remembered")
    at_first = [relation for relation in cost.whole_at_first if relation not in cost.whole]
    for whole, when in ((cost.whole, "every time"), (at_first, "unless remembered")):
        if whole:
            yield from _item(f"! reads {listed(list(map(str, whole)))} whole, {when}", "    ")


def _rounds(rounds: Rounds, word: str) -> Iterator[str]:
    told = ", then ".join(" + ".join(map(str, round_)) for round_ in rounds)
    if rounds:
        yield from _item(f"{word}: {told}", "    ")


def _arrow(numbers: tuple[int, int]) -> str:
    first, remembered = (str(n) if n else "none" for n in numbers)
    return first if first == remembered else f"{first} → {remembered}"


def _with_nulls(cost: QuestionCost) -> str:
    """The number of questions with NULLs, if it is larger: sources match no NULL."""
    if not any(cost.more_with_nulls):
        return ""
    return f" (with NULLs among the keys up to {_arrow(cost.most)})"


# -- results of the analysis -----------------------------------------------------------------------


def _outer_joins(found: Explanation) -> Iterator[str]:
    if found.never_padded:
        yield from _item(
            f"! rows without {listed(found.never_padded)} are never seen: a condition drops what"
            " the outer join adds, so the join is kept without these rows. If they should be"
            " seen, move the condition into the ON of the join"
        )
    for each in found.outer_joins:
        yield from _item(each.block)
        if isinstance(each, BlockAnalysis):
            yield from _block(each)
        else:
            yield from _item(each.reason, "  ")


def _block(joins: BlockAnalysis) -> Iterator[str]:
    yield "is the union of these inner joins, less rows that are part of a row of a larger one:"
    for term in joins.form.terms:
        yield from _item(str(term), "  ")
    yield from as_text(subsumption_drawing(joins.subsumption)).splitlines()
    yield "D: rows with the updated relation; I: orphans that these make, or take in"
    for update in joins.updates:
        yield from as_text(maintenance_drawing(update.graph)).splitlines()
        yield from _item(f"D together: {update.primary}", "  ")
        for orphans in (*update.insertion, *update.deletion):
            yield from _item(f"I: {orphans}", "  ")
        if update.spared:
            yield from _reduced_by_keys(update)
    if joins.counters is not None:
        yield from _item(f"above it {joins.counters}")


def _reduced_by_keys(update: UpdateAnalysis) -> Iterator[str]:
    """What an update that only inserts or only deletes still touches, by foreign keys."""
    if not update.reduced.affected:
        yield f"an insertion or deletion of {update.alias} touches nothing, by foreign keys"
        return
    yield from as_text(reduced_drawing(update.reduced)).splitlines()
    yield from _item(f"D together: {update.primary_reduced}", "  ")


def _foreign_keys(found: Explanation) -> Iterator[str]:
    for each in found.foreign_keys:
        across = (
            ""
            if each.within_source
            else ": across sources, where a row may arrive before the one that it references; so"
            " nothing is concluded from it"
        )
        yield from _item(f"{each}{across}")


def _safety(found: Explanation) -> Iterator[str]:
    if isinstance(found.safety, str):
        yield from _item(f"the criteria do not reach here: {found.safety}")
        return
    for select in found.safety:
        bound = [each.column for each in select.bound]
        yield from _item(f"bound: {listed(bound) if bound else 'no column'}")
        yield from _items(str(select).splitlines())
        yield from _items(select.suggestions)


def _items(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from _item(text)


def _item(text: str, indent: str = "") -> list[str]:
    """One text on as many lines as it needs."""
    words, _, command = text.partition("\n")
    wrapped = textwrap.wrap(
        words,
        _WIDTH - 2,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A command stays on one line, so that it can be pasted.
    return [*wrapped, f"{indent}  {command}"] if command else wrapped
