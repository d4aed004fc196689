"""A program as one would write it by hand: dictionaries of rows, one change after the other.

    python dictionaries.py JOB.json

Per relation its rows by key, and for each link which rows lead to a partner. A change is joined
with what is there; copies of all relations are kept, nothing is durable.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

#: Column → value; a row of a relation has its key under `number`.
Row = dict[str, Any]
#: Relation → the row that takes part.
Rows = dict[str, Row]
#: Value of a link → keys of the rows that have it.
Leading = defaultdict[Any, set[Any]]


class DictionaryJoin:
    """All relations, and what they make together."""

    def __init__(self, job: Any) -> None:
        self.relations: list[str] = [relation["name"] for relation in job["relations"]]
        #: Relation → key → row.
        self.rows: dict[str, dict[Any, Row]] = {name: {} for name in self.relations}
        #: Relation → links as (column, partner), and the reverse.
        self.links: dict[str, list[tuple[str, str, Leading]]]
        self.links = {name: [] for name in self.relations}
        self.reverse: dict[str, list[tuple[str, Leading]]] = {name: [] for name in self.relations}
        for link in job["links"]:
            leading: Leading = defaultdict(set)
            self.links[link["of"]].append((link["column"], link["to"], leading))
            self.reverse[link["to"]].append((link["of"], leading))
        self.outputs = [(o["name"], o["relation"], o["column"]) for o in job["outputs"]]

    def joined(self, name: str, row: Row) -> list[Rows]:
        """All rows of the view that this row takes part in."""
        found = [{name: row}]
        for column, to, _ in self.links[name]:
            found = self._with(found, self._there(to, row[column]), name)
        for of, leading in self.reverse[name]:
            partners = [(of, self.rows[of][key]) for key in leading[row["number"]]]
            found = self._with(found, partners, name)
        return found

    def _there(self, name: str, key: Any) -> Sequence[tuple[str, Row]]:
        row = self.rows[name].get(key)
        return () if row is None else ((name, row),)

    def _with(
        self, found: list[Rows], partners: Iterable[tuple[str, Row]], came_from: str
    ) -> list[Rows]:
        """The rows found so far, each joined with its partners and theirs."""
        behind: list[Rows] = []
        for name, row in partners:
            behind += self._beyond(name, row, came_from)
        return [{**one, **other} for one in found for other in behind]

    def _beyond(self, name: str, row: Row, came_from: str) -> list[Rows]:
        found = [{name: row}]
        for column, to, _ in self.links[name]:
            if to != came_from:
                found = self._with(found, self._there(to, row[column]), name)
        for of, leading in self.reverse[name]:
            if of != came_from:
                partners = [(of, self.rows[of][key]) for key in leading[row["number"]]]
                found = self._with(found, partners, name)
        return found

    def remove(self, name: str, row: Row) -> list[Rows]:
        changes = self.joined(name, row)
        del self.rows[name][row["number"]]
        for column, _, leading in self.links[name]:
            leading[row[column]].discard(row["number"])
        return changes

    def add(self, name: str, row: Row) -> list[Rows]:
        self.rows[name][row["number"]] = row
        for column, _, leading in self.links[name]:
            leading[row[column]].add(row["number"])
        return self.joined(name, row)

    def record(self, rows: Rows, diff: int, time: int) -> bytes:
        form = {name: rows[relation][column] for name, relation, column in self.outputs}
        form["diff"], form["time"] = diff, time
        return orjson.dumps(form)


def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    join, of_topic = DictionaryJoin(job), {r["topic"]: r["name"] for r in job["relations"]}
    settings = {"bootstrap.servers": job["bootstrap"]}
    consumer = Consumer({**settings, "group.id": job["out"], "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in of_topic])
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    time = 0
    while True:
        for message in consumer.consume(10_000, 0.02):
            if message.error():
                continue
            time += 1
            name = of_topic[message.topic()]
            payload = orjson.loads(message.value() or b"")["payload"]
            for image, step, diff in (("before", join.remove, -1), ("after", join.add, 1)):
                if payload[image] is not None:
                    for rows in step(name, payload[image]):
                        producer.produce(job["out"], join.record(rows, diff, time))
            producer.poll(0)
        producer.flush(1)


if __name__ == "__main__":
    main()
