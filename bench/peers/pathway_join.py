"""The view in Pathway: python pathway_join.py JOB.json, in an environment that has Pathway."""

import json
import sys

import pathway as pw

#: None stalls with several sources.
_AUTOCOMMIT_MS = 20


def _schema(relation):
    columns = {
        name: pw.column_definition(primary_key=name in relation["key"], dtype=_TYPES[type_])
        for name, type_ in relation["columns"].items()
    }
    return pw.schema_builder(columns, name=relation["name"])


_TYPES = {"BIGINT": int, "VARCHAR": str}


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    settings = {
        "bootstrap.servers": job["bootstrap"],
        "group.id": job["out"],
        "auto.offset.reset": "earliest",
        "session.timeout.ms": "10000",
    }
    tables = {
        relation["name"]: pw.io.debezium.read(
            settings,
            relation["topic"],
            schema=_schema(relation),
            autocommit_duration_ms=_AUTOCOMMIT_MS,
        )
        for relation in job["relations"]
    }
    first = job["relations"][0]["name"]
    joined = tables[first].select(**{f"{first}__{c}": tables[first][c] for c in _used(job, first)})
    for link in job["links"]:
        to = tables[link["to"]]
        left = joined[f"{link['of']}__{link['column']}"]
        more = {f"{link['to']}__{column}": to[column] for column in _used(job, link["to"])}
        there = {name: joined[name] for name in joined.column_names()}
        joined = joined.join(to, left == to.number)
        joined = joined.select(**there, **more)
    shown = {o["name"]: joined[f"{o['relation']}__{o['column']}"] for o in job["outputs"]}
    producer = {"bootstrap.servers": job["bootstrap"]}
    pw.io.kafka.write(joined.select(**shown), producer, job["out"], format="json")
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def _used(job, name):
    """The columns of a relation that the view shows or links."""
    shown = [o["column"] for o in job["outputs"] if o["relation"] == name]
    return dict.fromkeys([*shown, *(x["column"] for x in job["links"] if x["of"] == name)])


if __name__ == "__main__":
    main()
