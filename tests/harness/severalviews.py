"""Jobs over several views of a small world."""

import random
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming.settings.configuration import Configuration, ViewSettings, read_configuration
from tests.cases.stories import KEYED
from tests.harness.records import cut, records
from tests.harness.world import OneView, World

#: Over the sources a and b; b and c; all three. The last one can be kept by Strobe.
LEFT = "SELECT r.id AS r_id, s.id AS s_id, r.t FROM a.r r JOIN b.s s ON r.x = s.x"
RIGHT = "SELECT s.id AS s_id, s.x, u.y, u.z FROM b.s s JOIN c.u u ON s.y = u.y WHERE u.z <> 'm'"
ALL = KEYED.sql
#: Looks up the same relations as `ALL` does by the same columns, under the same conditions.
LIKE_ALL = ALL.replace("r.t, u.z", "u.z")


@dataclass(frozen=True)
class Kept:
    """A view of the job: its SQL and its protocol."""

    name: str
    sql: str
    protocol: str = "batched-sweep"


class Views:
    """Starts jobs over some of these views, as often as a test needs one."""

    def __init__(self, world: World, *views: Kept, **changes: Any) -> None:
        """`changes` are values for [job]."""
        self._world = world
        self._kept = {view.name: view for view in views}
        known = read_configuration(world.write_configuration(**changes))
        self._configuration: Configuration = known
        self._settings = {
            view.name: ViewSettings(view.name, Path("none"), view.sql, view.protocol)
            for view in views
        }

    def job(self, *names: str) -> "closing[OneView]":
        chosen = [self._settings[name] for name in names or self._kept]
        return closing(OneView(self._configuration, chosen, self._world.reports.append))

    def take_all(self, job: OneView, batches: int = 1, seed: int = 0) -> None:
        """Takes everything in the topics after the standing of the earliest view."""
        found = records(self._world.bootstrap, job.offsets)
        for batch in cut(found, random.Random(seed), batches):
            job.take(batch)

    def assert_complete(self, job: OneView, *names: str) -> dict[str, int]:
        """Checks views at every position, each with its own SQL; returns their numbers."""
        found = {}
        for view in job.views:
            name = view.view.name
            if names and name not in names:
                continue
            world = self._with_sql(self._kept[name].sql)
            found[name] = world.assert_complete(view.tables)
            sources = view.view.sources
            assert view.standing.vector == {s: world.versions[s] for s in sources}, name
        return found

    def _with_sql(self, sql: str) -> World:
        """The same sources, with the truth about another view over them."""
        world = World(self._world.directory, self._world.bootstrap, "", replace(KEYED, sql=sql))
        world.sources = self._world.sources
        return world
