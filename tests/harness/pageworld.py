"""A job over small sources that shows itself, with updates that came while it was asking."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from page.site import site
from page.watched import JobHere
from protocols.views.catalog import Relation
from streaming.settings.configuration import Configuration, read_configuration
from tests.cases.stories import KEYED
from tests.harness.pages import Served, served
from tests.harness.records import cut, records
from tests.harness.truth import Oracle
from tests.harness.waiting import eventually
from tests.harness.world import OneView, World, start
from warehouse.tables import ViewTables

#: A value that would run as a script if a page did not escape it.
SCRIPT = "<script>document.title='stolen'</script>"
VIEWS = {
    "v": KEYED.sql,
    "left": "SELECT r.id, r.t, s.id AS s_id FROM a.r r LEFT JOIN b.s s ON r.x = s.x",
    "groups": "SELECT s.y, COUNT(*) AS n, MAX(r.id) AS last FROM a.r r JOIN b.s s ON r.x = s.x"
    " GROUP BY s.y",
}
_BATCHES = 6


@dataclass
class ShownWorld:
    """The sources, the job, and its page."""

    world: World
    configuration: Configuration
    job: OneView
    page: Served

    def tables(self, view: str) -> ViewTables:
        return next(each.tables for each in self.job.views if each.view.name == view)

    def vector(self, view: str, position: int) -> dict[str, int]:
        """The version of each source that the view contains at a position."""
        tables = self.tables(view)
        vector = dict(tables.first_standing().vector)
        for at, source, version in (
            tables.progress().select("position", "source", "version").iter_rows()
        ):
            if at <= position:
                vector[source] = version
        return vector

    @cached_property
    def _oracles(self) -> dict[str, Oracle]:
        sources = self.world.sources.values()
        return {name: Oracle(sources, sql) for name, sql in VIEWS.items()}

    def truth(self, view: str, position: int) -> Counter[tuple[Any, ...]]:
        """The rows of a view at a position, by DuckDB from what the sources committed."""
        return self._oracles[view].at(self.vector(view, position))

    def held(self, relation: Relation, version: int) -> Counter[tuple[Any, ...]]:
        """The rows of a relation at a version of its source."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for at, name, row, count in self.world.sources[relation.source].history:
            if name == relation.name and at <= version:
                rows[row] += count
        return +rows

    def follow(self) -> None:
        """Lets `current` follow to the last position."""

        def followed() -> bool:
            self.job.running.tend()
            return all(v.tables.followed() == v.standing.position for v in self.job.views)

        eventually(followed, "current has followed")


@contextmanager
def shown_world(directory: Path, bootstrap: str) -> Iterator[ShownWorld]:
    """The job has taken several batches, whose answers contained all later ones."""
    with World(directory, bootstrap, f"{directory.name}-page", KEYED) as world:
        world.publish()
        world.commit_at_random(random.Random(1), 20)
        world.wait_until_published()
        configuration = read_configuration(_written(world))
        views = list(configuration.views.values())
        job = OneView(configuration, views, world.reports.append)
        try:
            with served(site(JobHere(job), configuration)) as page:
                start(job)
                shown = ShownWorld(world, configuration, job, page)
                world.commit_at_random(random.Random(2), 120)
                world.sources["b"].commit(("s", (90, 50, 50), 1))
                world.sources["c"].commit(("u", (50, "k"), 1))
                world.sources["a"].commit(("r", (99, 50, SCRIPT), 1))
                world.wait_until_published()
                found = records(bootstrap, job.offsets)
                for batch in cut(found, random.Random(3), _BATCHES):
                    job.take(batch)
                shown.follow()
                job.measures.phase = "keeping"
                yield shown
        finally:
            job.close()


def _written(world: World) -> Path:
    return world.write_configuration(toml={"[job]": _sections(world.directory) + "[job]"})


def _sections(directory: Path) -> str:
    text = '[page]\nlisten = "127.0.0.1:8090"\n'
    for name, sql in VIEWS.items():
        if name != "v":
            (directory / f"{name}.sql").write_text(sql)
            text += f'[views.{name}]\nsql = "{name}.sql"\n'
    return text
