"""`warehouse.toml`: the settings of a job, checked key by key before anything is started."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from protocols.errors import WrongUse
from protocols.maintenance.registry import DEFAULT, protocol
from protocols.views.catalog import Catalog, refuse_source_name
from protocols.views.dialects import Dialect, dialect_named
from protocols.views.sql import sources_named_in
from sources.kafka import Kafka
from streaming.settings.kafkasection import KEYS, kafka_in
from streaming.settings.pagesection import KEYS as PAGE_KEYS
from streaming.settings.pagesection import PageSettings, page_in
from streaming.settings.periods import seconds_of
from streaming.settings.sqlfiles import sql_in

_TABLES = {
    "warehouse": {"path"},
    "kafka": KEYS,
    "sources": {
        "address",
        "postgres_env",
        "postgres_file",
        "schema",
        "publication",
        "mariadb_env",
        "mariadb_file",
        "marks",
        "topic",
        "token_env",
        "tls_roots",
        "keep",
        "relations",
    },
    "views": {"sql", "protocol", "history_hours", "dialect"},
    "page": PAGE_KEYS,
    "job": {
        "records_per_batch",
        "records_per_sweep",
        "mailbox_megabytes",
        "executor_rows",
        "page_rows",
        "answer_megabytes",
        "current_every_seconds",
        "upkeep_every_seconds",
        "readers_minutes",
        "patience_seconds",
        "audit_every",
    },
}
#: The directory, beside the views, of Spark's checkpoints for jobs with several views.
CHECKPOINTS = "_checkpoints"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
#: Keys of [job] that may be 0.
_NONE_AT_ZERO = {"executor_rows"}


#: Whether to keep a copy of a relation: "ask" its source instead, or "full" for all rows in memory.
Keep: TypeAlias = Literal["ask", "full"]
DatabaseKind: TypeAlias = Literal["postgres", "mariadb"]
#: Kind of database → the keys that belong to it alone, and their values if they are left out.
_OWN_KEYS: Mapping[DatabaseKind, Mapping[str, str]] = {
    "postgres": {"schema": "public", "publication": "viewsweep"},
    "mariadb": {"marks": "viewsweep_marks"},
}
#: Key of an address → its kind of database, and the kind of place where the address stands.
_DATABASES: Mapping[str, tuple[DatabaseKind, str]] = {
    f"{kind}_{place}": (kind, place) for kind in _OWN_KEYS for place in ("env", "file")
}


@dataclass(frozen=True)
class DatabaseSettings:
    """Where the address of a PostgreSQL database stands, which may hold a password."""

    #: The name of an environment variable, or a file; the other one is None.
    env: str | None
    file: Path | None
    kind: DatabaseKind
    #: The schema of its tables; None for a kind that has none.
    schema: str | None = None
    #: The publication of its connector; None for a kind that has none.
    publication: str | None = None
    #: The table of marks; None for a kind that needs none.
    marks: str | None = None

    @property
    def key(self) -> str:
        """The key that names its address."""
        return f"{self.kind}_{'env' if self.file is None else 'file'}"


@dataclass(frozen=True)
class SourceSettings:
    """The addresses of one source: its query server or its database, and its topics."""

    name: str
    #: The query server's; empty if the database itself is asked.
    address: str
    topics: tuple[str, ...]
    #: Name of the environment variable that holds the token, for servers off loopback.
    token_env: str | None
    tls_roots: Path | None
    #: Relation → whether a copy of it is kept; "ask" if it is not named.
    keep: Mapping[str, Keep] = field(default_factory=dict)
    #: Relation → what the source does not declare itself: keys, foreign keys, updates; in JSON.
    relations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The database that is asked, if the source has no query server.
    database: DatabaseSettings | None = None

    def keeps_copy_of(self, relation: str) -> bool:
        """Whether a copy of the relation answers in place of this source."""
        return self.keep.get(relation) == "full"

    def refuse_unknown_copies(self, catalog: Catalog) -> None:
        """WrongUse if `keep` names a relation that the source does not have."""
        known = [relation.name for relation in catalog.relations if relation.source == self.name]
        for relation in self.keep:
            if relation not in known:
                raise WrongUse(
                    f"sources.{self.name}.keep.{relation}: source {self.name} has no relation"
                    f" {relation!r}; it has: {', '.join(known)}"
                )


@dataclass(frozen=True)
class ViewSettings:
    """One view: its SQL and the protocol that keeps it."""

    name: str
    sql_file: Path
    sql: str
    protocol: str
    #: For how long each past state can be read; None for ever.
    history_hours: float | None = None
    #: The dialect of its SQL; None if it has only what all databases agree on.
    dialect: Dialect | None = None

    def with_protocol(self, name: str) -> "ViewSettings":
        """The same view, kept by another protocol; WrongUse if there is none of that name."""
        return replace(self, protocol=protocol(name).name)


@dataclass(frozen=True)
class JobSettings:
    """The settings of the job; every field has a default."""

    #: At most this many records in one micro-batch: throughput grows with it.
    records_per_batch: int = 100_000
    #: A larger batch, or a backlog, is swept and committed in pieces of at most so many records:
    #: memory grows with it. A single transaction stays whole, however large it is.
    records_per_sweep: int = 200_000
    #: Received updates that are not installed yet stay in memory up to this size, over all
    #: relations; the rest spills to files in the directory for temporary files (TMPDIR).
    mailbox_megabytes: int = 512
    #: A batch of at least this many changed rows is swept on the executors; 0 for none. Below some
    #: hundred thousand they do not pay on any number of cores: `make executors`. Batches and their
    #: pieces are no larger than the two settings above: raise these as well.
    executor_rows: int = 1_000_000
    #: Rows of a page when the first state is read.
    page_rows: int = 20_000
    #: A larger answer of a source ends the job: its query server lies, or a relation is that large
    #: and has no key to read it in pages by.
    answer_megabytes: int = 256
    #: The `current` table follows at most this often, in a quiet second or after six batches.
    current_every_seconds: float = 1.0
    #: The upkeep of the tables (small files, logs) runs at most this often.
    upkeep_every_seconds: float = 10.0
    #: How long replaced files stay, for readers that have opened a table before.
    readers_minutes: float = 10.0
    #: How long a source or a topic that does not answer is asked again before the job gives up.
    patience_seconds: float = 60.0
    #: The seconds from one audit of the views to the next; None for no audits.
    audit_every: float | None = None


@dataclass(frozen=True)
class Configuration:
    """The whole file."""

    file: Path
    warehouse: Path
    kafka: Kafka
    sources: Mapping[str, SourceSettings]
    views: Mapping[str, ViewSettings]
    job: JobSettings
    #: Where the job shows itself; None if nowhere.
    page: PageSettings | None = None

    def sources_of(self, view: ViewSettings) -> dict[str, SourceSettings]:
        """The sources that the view's SQL names; the others may be away.

        A source that is named and not configured is refused by the check of the SQL, which knows
        the place. That check also refuses SQL that names no source, so all are returned for it.
        """
        named = sources_named_in(view.sql)
        used = {name: s for name, s in self.sources.items() if name.lower() in named}
        return used or dict(self.sources)

    def view(self, name: str | None) -> ViewSettings:
        """The view of this name, or the only one there is."""
        if name is None and len(self.views) == 1:
            return next(iter(self.views.values()))
        if name is None:
            known = ", ".join(self.views)
            raise WrongUse(f"{self.file} has several views; choose one with --view: {known}")
        if name not in self.views:
            raise WrongUse(
                f"{self.file}: there is no [views.{name}]; choose one of: {', '.join(self.views)}"
            )
        return self.views[name]


def read_configuration(file: Path) -> Configuration:
    """Reads and checks the file; WrongUse names the key and what is wrong with it."""
    return _Reader(file, _content_of(file)).configuration()


def read_kafka(file: Path) -> Kafka:
    """The file's section `[kafka]` alone, for who has no views; WrongUse as above."""
    return _Reader(file, _content_of(file)).kafka()


def _content_of(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(
            f"cannot read {file}: {error.strerror}. Name one with --config; examples/warehouse.toml"
            " is one to begin with, and 'viewsweep demo' needs none"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} is not TOML: {error}") from None


class _Reader:
    """Reads values from the parsed file; every error names file and key."""

    def __init__(self, file: Path, content: dict[str, Any]) -> None:
        self._file = file
        self._content = content

    def configuration(self) -> Configuration:
        self._refuse_unknown(self._content, "", set(_TABLES))
        for name in ("warehouse", "job"):
            self._refuse_unknown(self._table(self._content, name, ""), name, _TABLES[name])
        sources = {name: self._source(name) for name in self._named("sources")}
        self._refuse_shared_topics(sources)
        views = {name: self._view(name) for name in self._named("views")}
        warehouse = self._table(self._content, "warehouse", "")
        return Configuration(
            self._file,
            self._beside(self._local(self._text(warehouse, "path", "warehouse"))),
            self.kafka(),
            sources,
            views,
            self._job(),
            self._page(),
        )

    def _page(self) -> PageSettings | None:
        if "page" not in self._content:
            return None
        try:
            return page_in(self._table(self._content, "page", ""), self._beside)
        except WrongUse as error:
            raise WrongUse(f"{self._file}: {error}") from None

    def kafka(self) -> Kafka:
        """The environment wins, so that one file serves the demo, the tests and a real broker."""
        table = self._table(self._content, "kafka", "")
        try:
            return kafka_in(table, os.environ.get("VIEWSWEEP_BROKER"), self._beside)
        except WrongUse as error:
            raise WrongUse(f"{self._file}: {error}") from None

    def _source(self, name: str) -> SourceSettings:
        table = self._named("sources")[name]
        where = f"sources.{name}"
        self._refuse_unknown(table, where, _TABLES["sources"])
        try:
            refuse_source_name(name)
        except WrongUse as error:
            self._refuse(repr(where), str(error))
        roots = self._text(table, "tls_roots", where, None)
        database = self._database(table, where)
        return SourceSettings(
            name,
            "" if database else self._text(table, "address", where),
            self._topics(table, name),
            self._text(table, "token_env", where, None),
            self._beside(roots) if roots else None,
            self._keep(table, where),
            self._relations(table, where),
            database,
        )

    def _database(self, table: dict[str, Any], where: str) -> DatabaseSettings | None:
        """The database that is asked, if the source has no query server."""
        given = [key for key in ("address", *_DATABASES) if key in table]
        if len(given) != 1:
            problem = "is missing" if not given else f"and {where}.{given[1]} exclude each other"
            self._refuse(f"{where}.{(given or ['address'])[0]}", problem)
        kind, place = _DATABASES.get(given[0], (None, ""))
        for other, keys in _OWN_KEYS.items():
            for key in keys:
                if other != kind and key in table:
                    self._refuse(f"{where}.{key}", f"belongs to {other}_env or {other}_file")
        if kind is None:
            return None
        for key in ("token_env", "tls_roots"):
            if key in table:
                self._refuse(f"{where}.{key}", "belongs to address; put TLS into the database's")
        address = self._text(table, given[0], where)
        own = {
            key: self._text(table, key, where, default) for key, default in _OWN_KEYS[kind].items()
        }
        is_file = place == "file"
        return DatabaseSettings(
            None if is_file else address, self._beside(address) if is_file else None, kind, **own
        )

    def _topics(self, table: dict[str, Any], name: str) -> tuple[str, ...]:
        """The topics of a source: one, a list, or the one that has its name."""
        given = table.get("topic", name)
        topics = [given] if isinstance(given, str) else given
        if not isinstance(topics, list) or not all(isinstance(t, str) and t for t in topics):
            problem = f"has to be a text, or a list of texts, not {given!r}"
            self._refuse(f"sources.{name}.topic", problem)
        if not topics or len(set(topics)) < len(topics):
            problem = "is empty" if not topics else "names a topic twice"
            self._refuse(f"sources.{name}.topic", problem)
        return tuple(topics)

    def _keep(self, table: dict[str, Any], where: str) -> dict[str, Keep]:
        kept = self._table(table, "keep", f"{where}.")
        for relation, value in kept.items():
            if value not in get_args(Keep):
                problem = f"has to be one of {', '.join(get_args(Keep))}, not {value!r}"
                self._refuse(f"{where}.keep.{relation}", problem)
        return kept

    def _relations(self, table: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
        relations = self._table(table, "relations", f"{where}.")
        for name in relations:
            place = f"{where}.relations"
            form = self._table(relations, name, f"{place}.")
            self._refuse_unknown(form, f"{place}.{name}", {"keys", "foreign_keys", "updates"})
        return relations

    def _refuse_shared_topics(self, sources: Mapping[str, SourceSettings]) -> None:
        owners: dict[str, str] = {}
        for name, topic in ((n, topic) for n, source in sources.items() for topic in source.topics):
            other = owners.setdefault(topic, name)
            if other != name:
                problem = f"is {topic!r}, the topic of source {other!r}; each needs its own"
                self._refuse(f"sources.{name}.topic", problem)

    def _view(self, name: str) -> ViewSettings:
        table = self._named("views")[name]
        where = f"views.{name}"
        self._refuse_unknown(table, where, _TABLES["views"])
        if not name.replace("_", "").replace("-", "").isalnum():
            self._refuse(
                where, "is not a view name, which becomes a directory: use letters, digits, _ and -"
            )
        if name == CHECKPOINTS:
            self._refuse(where, "is the name of one of viewsweep's own directories; choose another")
        text = self._text(table, "sql", where)
        if text.split() and text.split()[0].lower() in ("select", "with"):
            self._refuse(f"{where}.sql", "names a file: put the SQL into one")
        file = self._beside(text)
        try:
            sql = sql_in(file)
        except WrongUse as error:
            self._refuse(f"{where}.sql", str(error))
        chosen = self._text(table, "protocol", where, DEFAULT) or DEFAULT
        try:
            protocol(chosen)
        except WrongUse as error:
            self._refuse(f"{where}.protocol", str(error))
        history = table.get("history_hours")
        if history is not None:
            history = self._positive(table, "history_hours", 0.0, where)
        try:
            dialect = dialect_named(table.get("dialect"))
        except WrongUse as error:
            self._refuse(f"{where}.dialect", str(error))
        return ViewSettings(name, file, sql, chosen, history, dialect)

    def _job(self) -> JobSettings:
        table = self._table(self._content, "job", "")
        defaults = JobSettings()
        numbers = _TABLES["job"] - {"audit_every"}
        values = {key: self._positive(table, key, getattr(defaults, key)) for key in numbers}
        try:
            every = seconds_of(table["audit_every"]) if "audit_every" in table else None
        except WrongUse as error:
            self._refuse("job.audit_every", str(error))
        return JobSettings(**values, audit_every=every)

    def _positive(self, table: dict[str, Any], key: str, default: Any, where: str = "job") -> Any:
        value = table.get(key, default)
        kinds = (int,) if isinstance(default, int) else (int, float)
        if key in _NONE_AT_ZERO and isinstance(value, int) and value is not False and value == 0:
            return 0
        if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
            kind = "a whole number" if isinstance(default, int) else "a number"
            least = "above 0, or 0 for none" if key in _NONE_AT_ZERO else "above 0"
            self._refuse(f"{where}.{key}", f"has to be {kind} {least}, not {value!r}")
        return value

    def _named(self, key: str) -> dict[str, dict[str, Any]]:
        tables: dict[str, dict[str, Any]] = self._table(self._content, key, "")
        if not tables:
            self._refuse(key, f"is missing: at least one [{key}.NAME] is needed")
        for name, table in tables.items():
            if not isinstance(table, dict):
                self._refuse(f"{key}.{name}", f"has to be a table: [{key}.{name}]")
        return tables

    def _table(self, content: dict[str, Any], key: str, where: str) -> dict[str, Any]:
        table: dict[str, Any] = content.get(key, {})
        if not isinstance(table, dict):
            self._refuse(f"{where}{key}", f"has to be a table: [{key}]")
        return table

    def _text(self, table: dict[str, Any], key: str, where: str, default: str | None = "") -> Any:
        if key not in table and default != "":
            return default
        value = table.get(key)
        if not isinstance(value, str) or not value:
            problem = "is missing" if key not in table else f"has to be a text, not {value!r}"
            self._refuse(f"{where}.{key}", problem)
        return value

    def _local(self, path: str) -> str:
        """A path, not an address: `s3://lake` would become a directory `s3:`."""
        if _SCHEME.match(path):
            problem = f"is {path!r}; a lake is a directory of this machine, give its path"
            self._refuse("warehouse.path", problem)
        return path

    def _beside(self, path: str) -> Path:
        """Relative paths count from the file's own directory."""
        return (self._file.parent / Path(path).expanduser()).resolve()

    def _refuse_unknown(self, table: dict[str, Any], where: str, known: set[str]) -> None:
        for key in table:
            if key not in known:
                place = f"{where}.{key}" if where else key
                self._refuse(place, f"is not known here; there are: {', '.join(sorted(known))}")

    def _refuse(self, key: str, problem: str) -> NoReturn:
        raise WrongUse(f"{self._file}: {key} {problem}")
