"""`viewsweep sources inspect`: the sources of a configuration, as a job would see them."""

import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from cli.common import ConfigOption, report
from cli.sourceoptions import told
from protocols.errors import WrongUse
from protocols.exchange.inclusion import IN_WORDS
from protocols.views.statistics import Statistics
from sources.partitions import Ends
from sources.port import Description
from streaming.settings.configuration import Configuration, read_configuration

#: A person waits for it.
_PATIENCE_SECONDS = 10.0


def inspect(
    config: ConfigOption = Path("warehouse.toml"),
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Only this one; repeat it for more.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show the sources of a configuration: versions, topics, relations, keys, sizes.

    It asks each query server and the broker as a job does at its start, and changes nothing.
    """
    known = read_configuration(config)
    names = source or list(known.sources)
    for name in names:
        if name not in known.sources:
            raise WrongUse(
                f"{config}: there is no [sources.{name}]; choose one of: {', '.join(known.sources)}"
            )
    found = {name: _inspected(*each) for name, each in _asked(known, names).items()}
    if as_json:
        typer.echo(orjson.dumps(found).decode())
        return
    for name, form in found.items():
        _show(name, form)


_Asked = tuple[Description, Mapping[str, Statistics], Ends]


def _asked(known: Configuration, names: list[str]) -> dict[str, _Asked]:
    # Imported here: Kafka's client takes long, and --help does not need it.
    from sources.topics import ends_of
    from streaming.intake.asking import Sources
    from warehouse.standing import latest_in

    used = {name: known.sources[name] for name in names}
    patience = min(known.job.patience_seconds, _PATIENCE_SECONDS)
    with closing(Sources(used, patience, report, threading.Event())) as sources:
        ends = ends_of(known.kafka, {name: used[name].topics for name in names})
        sources.begin(known.kafka, ends, latest_in(known.warehouse, names))
        described = sources.described()
        return {n: (described[n], sources.statistics(n), ends[n]) for n in names}


def _inspected(
    described: Description, statistics: Mapping[str, Statistics], ends: Ends
) -> dict[str, Any]:
    return {
        "version": described.version,
        "published": described.published,
        "reads": described.reads,
        "partitions": [
            {"topic": partition.topic, "partition": partition.number, "first": low, "next": high}
            for partition, (low, high) in ends.items()
        ],
        "relations": {
            name: {
                **relation.to_json(),
                "indexes": list(described.indexes.get(name, ())),
                "rows": statistics[name].rows if name in statistics else None,
                "distinct": dict(statistics[name].distinct) if name in statistics else None,
            }
            for name, relation in described.relations.items()
        },
        "left_out": dict(described.left_out),
    }


def _show(name: str, form: Mapping[str, Any]) -> None:
    typer.echo(f"source {name}: version {form['version']}, published {form['published']}")
    typer.echo(f"  gives {IN_WORDS[form['reads']]}")
    for each in form["partitions"]:
        typer.echo(
            f"  topic {each['topic']}, partition {each['partition']}:"
            f" offsets {each['first']} to {each['next']}"
        )
    for relation, of in form["relations"].items():
        distinct = of["distinct"] or {}
        columns = ", ".join(
            f"{column} {type_}" + (f" ({distinct[column]:,} values)" if column in distinct else "")
            for column, type_ in of["columns"].items()
        )
        rows = "" if of["rows"] is None else f": {of['rows']:,} rows"
        indexes = "".join(f", index on {column}" for column in of["indexes"])
        typer.echo(f"  {relation}{rows}; {told(of)}{indexes}")
        typer.echo(f"    {columns}")
    for what, reason in form["left_out"].items():
        typer.echo(f"  not for views: {what}: {reason}")
