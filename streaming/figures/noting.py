"""The entry of `progress` for a question and its answer."""

from typing import Any

from protocols.algebra.frame import Frame
from protocols.checking.trace import JOINT
from protocols.exchange.questions import Answer, Joint, Question


def noted(query: Question[Frame], answer: Answer[Frame], version: int) -> dict[str, Any]:
    """One entry of the column `questions`; the version is that of the corrected answer."""
    if isinstance(query, Joint):
        sent, relation = [rows for term in query.terms for rows in term.values()], JOINT
    else:
        sent, relation = list(query.keys or ()), query.relation.name
    return {
        "source": query.source,
        "relation": relation,
        "keys": sum(part.data.height for part in sent),
        "bytes": answer.bytes_sent,
        "version": version,
        "rows": answer.rows.data.height,
        "answer_bytes": answer.bytes_received,
    }
