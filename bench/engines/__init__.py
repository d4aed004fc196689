"""The engines to measure side by side, ours first."""

from bench.engines.engine import Engine
from bench.engines.inprocess import InProcess
from bench.engines.path import WholePath
from bench.engines.topics import OverTopics
from protocols.errors import WrongUse
from sources.simulated.workloads import LINKED_VIEWS

ENGINES: tuple[Engine, ...] = (
    WholePath(),
    *(
        WholePath(f"viewsweep-{view}", f"whole path with another view: {about}", view)
        for view, about in LINKED_VIEWS.items()
    ),
    WholePath(
        "viewsweep-full-restarted",
        "the same full joins in a restarted job, which asks again for all that it had remembered",
        "full",
        restarted=True,
    ),
    InProcess(
        "viewsweep-engine", "engine alone: no Kafka, no Delta; complete", "alone", keeps_base=False
    ),
    *(
        InProcess(
            f"viewsweep-engine-{view}",
            f"engine alone with another view: {about}",
            view,
            keeps_base=False,
        )
        for view, about in LINKED_VIEWS.items()
    ),
    InProcess(
        "limit",
        "one vectorised delta join, without order or states between: an upper bound",
        "limit",
        keeps_base=True,
    ),
    InProcess(
        "duckdb-recompute", "full recompute per batch, in process", "recompute", keeps_base=True
    ),
    OverTopics("dictionaries", "hand-written Python, not durable", "dictionaries.py"),
    OverTopics(
        "spark-join",
        "Spark's stream-stream join, RocksDB; insertions only",
        "spark_join.py",
        inserts_only=True,
        shows_states=False,
    ),
    OverTopics("pathway", "Pathway 0.33, not durable", "pathway_join.py", "pathway"),
    OverTopics("flink", "Flink SQL 2.3, not durable", "flink_join.py", "flink"),
)


def engines(names: list[str] | None) -> list[Engine]:
    """The engines of these names, or all; WrongUse lists the known ones."""
    known = {engine.name: engine for engine in ENGINES}
    for name in names or ():
        if name not in known:
            raise WrongUse(f"there is no engine {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names or known]
