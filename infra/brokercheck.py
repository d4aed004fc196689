"""A check that a broker answers: a real metadata request, since an open port proves nothing."""

import time
from typing import Any


def answers(bootstrap: str, seconds: float) -> bool:
    """True as soon as a broker there names at least one live broker of its cluster."""
    # Imported here: commands that need no broker should not load its client.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        # A broker that is not up yet is normal here and not worth a line on stderr.
        "log_level": 0,
        "error_cb": lambda _error: None,
    }
    client = AdminClient(settings)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            if client.list_topics(timeout=left).brokers:
                return True
        except KafkaException:
            pass
        time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
    return False
