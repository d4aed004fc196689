"""What lets a client in: read when it is made, refused by its key, and never shown."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from protocols.errors import WrongUse
from sources.kafka import Kafka
from streaming.spark.access import jaas, options_of
from tests.harness.certificates import Certificates, make_certificates

SECRET = 'open"sesame\\'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def sasl(files: Certificates, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setenv("KAFKA_USER", "me")
    monkeypatch.setenv("KAFKA_WORD", SECRET)
    return Kafka(
        "kafka:1",
        "SASL_SSL",
        "SCRAM-SHA-256",
        ca_file=files.authority,
        user_env="KAFKA_USER",
        password_env="KAFKA_WORD",
    )


@pytest.fixture
def tls(files: Certificates) -> Kafka:
    return Kafka(
        "kafka:1",
        "SSL",
        ca_file=files.authority,
        certificate_file=files.certificate,
        key_file=files.key,
    )


def test_librdkafka_gets_user_and_password_and_reads_what_is_committed(sasl: Kafka) -> None:
    found = sasl.consumer()
    assert (found["sasl.username"], found["sasl.password"]) == ("me", SECRET)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["isolation.level"] == "read_committed"


def test_a_password_file_may_end_its_line(sasl: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "word"
    file.write_text(SECRET + "\n")
    given = replace(sasl, password_env=None, password_file=file)
    assert given.client()["sasl.password"] == SECRET


def test_tokens_are_got_by_id_and_secret(sasl: Kafka) -> None:
    given = replace(sasl, sasl="OAUTHBEARER", token_url="https://id/token", scope="kafka")
    found = given.client()
    assert found["sasl.oauthbearer.client.id"] == "me"
    assert found["sasl.oauthbearer.client.secret"] == SECRET
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://id/token"
    assert 'clientId="me" clientSecret=' in jaas(given, given.user())


def test_it_may_be_shown_and_pickled(sasl: Kafka) -> None:
    """Executors get it with their batch, and Spark writes such things to disk."""
    for shown in (repr(sasl), repr(sasl.user()), repr(pickle.dumps(sasl))):
        assert "sesame" not in shown


def test_spark_gets_names_of_files_that_only_we_can_read(sasl: Kafka, tls: Kafka) -> None:
    both = replace(sasl, certificate_file=tls.certificate_file, key_file=tls.key_file)
    key = str(tls.key_file.read_text().splitlines()[1]) if tls.key_file else ""
    with options_of(both) as options:
        assert not any("sesame" in value or key in value for value in options.values())
        assert options["kafka.isolation.level"] == "read_committed"
        keystore = Path(options["kafka.ssl.keystore.location"])
        line = keystore.with_name("jaas")
        assert line.read_text().endswith(r'username="me" password="open\"sesame\\";')
        assert key in keystore.read_text()
        assert [f.stat().st_mode & 0o777 for f in (line, keystore, line.parent)] == [
            *(0o600, 0o600),
            0o700,
        ]
    assert not line.parent.exists()


def test_a_plain_cluster_has_nothing_to_hide() -> None:
    with options_of(Kafka("kafka:1")) as options:
        assert options == {
            "kafka.bootstrap.servers": "kafka:1",
            "kafka.isolation.level": "read_committed",
        }


def test_nobody_repeats_the_password_for_us(sasl: Kafka) -> None:
    for said in (SECRET, json.dumps({"no": SECRET}), urlencode({"no": SECRET})):
        assert "sesame" in said
        assert "sesame" not in sasl.without_secret(f"refused: {said}")
    assert Kafka("kafka:1").without_secret("refused") == "refused"


def _refusal(kafka: Kafka) -> str:
    with pytest.raises(WrongUse) as refused:
        kafka.client()
    message = str(refused.value)
    assert "sesame" not in message
    return message


def test_a_variable_that_is_not_set_is_named_by_its_key_alone(sasl: Kafka) -> None:
    # Who puts the password itself there must not find it in a log.
    assert "kafka.password_env names an environment variable that is not set" in _refusal(
        replace(sasl, password_env="open_sesame")
    )
    assert "kafka.user_env names an environment" in _refusal(replace(sasl, user_env="sesame"))


@pytest.mark.parametrize(
    ("content", "problem"), [("\n", "is empty"), ("open\nsesame", "has more than one line")]
)
def test_a_password_file_holds_a_password(
    sasl: Kafka, tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "word"
    file.write_text(content)
    said = _refusal(replace(sasl, password_env=None, password_file=file))
    assert f"kafka.password_file: {file} {problem}" in said


def test_a_missing_file_is_named_with_its_key(sasl: Kafka, tls: Kafka, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for kafka in (
        replace(sasl, ca_file=gone),
        replace(sasl, password_env=None, password_file=gone),
        replace(tls, certificate_file=gone),
        replace(tls, key_file=gone),
    ):
        [key] = [key for key, value in vars(kafka).items() if value == gone]
        said = _refusal(kafka)
        assert f"kafka.{key}: cannot read {gone}: No such file or directory; correct the" in said


def test_a_file_of_another_form_is_refused(
    sasl: Kafka, tls: Kafka, files: Certificates, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text("-----BEGIN EC PRIVATE KEY-----\n")
    assert "openssl pkcs8 -topk8 -nocrypt" in _refusal(replace(tls, key_file=other))
    assert "kafka.ca_file" in _refusal(replace(sasl, ca_file=files.key))
    assert "kafka.certificate_file" in _refusal(replace(tls, certificate_file=files.key))
    other.write_bytes(b"\xff\x00")
    assert f"kafka.ca_file: {other} is not text" in _refusal(replace(sasl, ca_file=other))
