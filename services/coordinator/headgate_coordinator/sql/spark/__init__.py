"""Spark SQL out of algebra, and the session settings under which it means what the planner says."""

from headgate_coordinator.sql.spark.expressions import ExpressionWriter, predicate_text, quote
from headgate_coordinator.sql.spark.query import InputView, QueryWriter

# With these, types and results of every plan are as the planner worked them out. `ansi` is Spark 4's default, said here
# because types depend on it; times are UTC; the watermark of several inputs is that of the slowest.
SPARK_CONF = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}

__all__ = ["SPARK_CONF", "ExpressionWriter", "InputView", "QueryWriter", "predicate_text", "quote"]
