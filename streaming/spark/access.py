"""The login of Spark's Kafka client: the same `[kafka]`, in the words of Java.

Spark keeps a query's options in its plans. So no secret is among them: they name files in a
directory that only we can read, and the client itself fetches them from there when it starts.

    jaas          user and password, through Kafka's DirectoryConfigProvider
    keystore.pem  our key and our certificate, which Java wants in one file

The directory lives as long as the query. The driver alone uses these options: it asks how far a
batch reaches. Executors read the topics with librdkafka, if at all.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from sources.kafka import Kafka, User

_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_SECURITY = "org.apache.kafka.common.security"
_JAAS, _KEYSTORE = "jaas", "keystore.pem"
#: Without it Kafka's client asks no address for tokens.
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


@contextmanager
def options_of(kafka: Kafka) -> Iterator[dict[str, str]]:
    """The options of Spark's source; the files that they name are there inside the context."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-kafka-"))
    try:
        settings = {
            "bootstrap.servers": kafka.bootstrap,
            "isolation.level": "read_committed",
            **(_guarded(kafka, directory) if kafka.security != "PLAINTEXT" else {}),
        }
        yield {f"kafka.{key}": value for key, value in settings.items()}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def allow_token_url(spark: SparkSession, kafka: Kafka) -> None:
    """Lets the JVM's Kafka client ask the address that gives tokens."""
    if kafka.token_url is not None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.System.setProperty(_ALLOWED_URLS, kafka.token_url)


def _guarded(kafka: Kafka, directory: Path) -> Mapping[str, str]:
    kafka.refuse_bad_files()
    found: dict[str, str] = {"security.protocol": kafka.security}
    if kafka.ca_file is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(kafka.ca_file)}
    if kafka.certificate_file is not None and kafka.key_file is not None:
        files = (kafka.key_file, kafka.certificate_file)
        keystore = _written(directory / _KEYSTORE, "\n".join(f.read_text() for f in files))
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
    if kafka.sasl is None:
        return found
    _written(directory / _JAAS, jaas(kafka, kafka.user()))
    provider = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    found |= {
        "sasl.mechanism": kafka.sasl,
        "config.providers": "directory",
        "config.providers.directory.class": provider,
        "sasl.jaas.config": f"${{directory:{directory}:{_JAAS}}}",
    }
    if kafka.token_url is not None:
        found |= {
            "sasl.oauthbearer.token.endpoint.url": kafka.token_url,
            "sasl.login.callback.handler.class": (
                f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
    return found


def jaas(kafka: Kafka, user: User) -> str:
    """The line from which Java's login learns who we are."""
    assert kafka.sasl is not None
    names = (
        ("clientId", "clientSecret") if kafka.sasl == "OAUTHBEARER" else ("username", "password")
    )
    given = dict(zip(names, (user.name, user.password), strict=True))
    if kafka.scope is not None:
        given["scope"] = kafka.scope
    words = " ".join(f"{name}={_quoted(value)}" for name, value in given.items())
    return f"{_SECURITY}.{_MODULES[kafka.sasl]} required {words};"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _written(file: Path, text: str) -> Path:
    """A file that only we can read, from its first moment on."""
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file
