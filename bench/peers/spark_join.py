"""The view as Spark's own stream-stream inner join: python spark_join.py JOB.json

Spark takes no retractions there: insertions are joined, everything else is left out.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from infra.sparksettings import settings

_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    builder = SparkSession.builder.appName("stream-stream join")
    for key, value in settings().items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.streaming.stateStore.providerClass", _STATE).getOrCreate()
    for relation in job["relations"]:
        _inserted(spark, job, relation).createOrReplaceTempView(relation["name"])
    query = (
        spark.sql(job["sql"])
        .selectExpr("to_json(struct(*)) AS value")
        .writeStream.format("kafka")
        .outputMode("append")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("topic", job["out"])
        .option("checkpointLocation", str(Path(sys.argv[1]).parent / "checkpoint"))
        .start()
    )
    query.awaitTermination()


def _inserted(spark: SparkSession, job: Any, relation: Any) -> DataFrame:
    columns = ", ".join(f"{name}: {type_}" for name, type_ in relation["columns"].items())
    columns = columns.replace("VARCHAR", "STRING")
    form = f"STRUCT<payload: STRUCT<op: STRING, after: STRUCT<{columns}>>>"
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", relation["topic"])
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr(f"from_json(CAST(value AS STRING), '{form}').payload AS payload")
        .where("payload.op = 'c'")
        .select("payload.after.*")
    )


if __name__ == "__main__":
    main()
