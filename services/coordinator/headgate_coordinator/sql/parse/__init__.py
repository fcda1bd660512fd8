"""From a text to statements. `parse_statements` is the way in; it raises `StatementError` and nothing else."""

from headgate_coordinator.sql.parse.text import parse_query_statement, parse_statements, parse_where

__all__ = ["parse_query_statement", "parse_statements", "parse_where"]
