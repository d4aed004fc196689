"""The view in Flink SQL: python flink_join.py JOB.json, in an environment that has PyFlink."""

import json
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    settings = Configuration()
    jars = sorted((Path(sys.prefix) / "connectors").glob("*.jar"))
    settings.set_string("pipeline.jars", ";".join(jar.as_uri() for jar in jars))
    settings.set_string("parallelism.default", "1")
    settings.set_string("pipeline.object-reuse", "true")
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    for relation in job["relations"]:
        columns = ", ".join(f"`{name}` {_TYPES[t]}" for name, t in relation["columns"].items())
        key = ", ".join(relation["key"])
        environment.execute_sql(
            f"CREATE TABLE {relation['name']} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ("
            f"{_kafka(job, relation['topic'])}, 'scan.startup.mode' = 'earliest-offset',"
            " 'debezium-json.schema-include' = 'true', 'properties.max.poll.records' = '10000',"
            " 'properties.isolation.level' = 'read_committed')"
        )
    columns = ", ".join(f"`{output['name']}` BIGINT" for output in job["outputs"])
    environment.execute_sql(
        f"CREATE TABLE shown ({columns}) WITH ({_kafka(job, job['out'])},"
        " 'sink.delivery-guarantee' = 'none')"
    )
    environment.execute_sql(f"INSERT INTO shown {job['sql']}").wait()


_TYPES = {"BIGINT": "BIGINT", "VARCHAR": "STRING"}


def _kafka(job, topic):
    return (
        f"'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'debezium-json',"
        f" 'properties.bootstrap.servers' = '{job['bootstrap']}',"
        f" 'properties.group.id' = '{job['out']}'"
    )


if __name__ == "__main__":
    main()
