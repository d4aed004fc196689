"""`[kafka]`: each fault is named by its key, with the way out; a secret is never repeated."""

from pathlib import Path

import pytest

from protocols.errors import WrongUse
from sources.kafka import Kafka
from streaming.settings.configuration import read_kafka

SASL = """
bootstrap = "kafka:9093"
security = "SASL_SSL"
sasl = "SCRAM-SHA-512"
ca_file = "ca.pem"
user_env = "KAFKA_USER"
password_env = "KAFKA_WORD"
"""
TLS = """
bootstrap = "kafka:9093"
security = "SSL"
certificate_file = "own.crt"
key_file = "own.key"
"""
TOKENS = (
    SASL.replace("SCRAM-SHA-512", "OAUTHBEARER") + 'token_url = "https://id/token"\nscope = "kafka"'
)
PLAIN = 'bootstrap = "kafka:9092"\n'
SECRET = "open-sesame"


@pytest.fixture(autouse=True)
def _no_broker_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIEWSWEEP_BROKER", raising=False)


def read(directory: Path, section: str) -> Kafka:
    file = directory / "warehouse.toml"
    file.write_text("[kafka]\n" + section)
    return read_kafka(file)


def test_files_count_from_the_configuration(tmp_path: Path) -> None:
    found = read(tmp_path, SASL)
    assert (found.security, found.sasl, found.ca_file) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
        tmp_path / "ca.pem",
    )
    assert (found.user_env, found.password_env) == ("KAFKA_USER", "KAFKA_WORD")
    found = read(tmp_path, TLS)
    assert (found.certificate_file, found.key_file) == (tmp_path / "own.crt", tmp_path / "own.key")
    assert read(tmp_path, TOKENS).token_url == "https://id/token"
    assert read(tmp_path, PLAIN) == Kafka("kafka:9092")


def test_the_environment_names_the_broker_and_the_section_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIEWSWEEP_BROKER", "elsewhere:1")
    found = read(tmp_path, SASL)
    assert (found.bootstrap, found.security) == ("elsewhere:1", "SASL_SSL")


WRONG = {
    "kafka.security has to be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'tls'": (
        TLS.replace('"SSL"', '"tls"')
    ),
    "kafka.sasl has to be one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER, not 'GSSAPI'": (
        SASL.replace("SCRAM-SHA-512", "GSSAPI")
    ),
    "kafka.sasl is missing: it is one of SCRAM": SASL.replace('sasl = "SCRAM-SHA-512"', ""),
    "kafka.user_env is missing": SASL.replace('user_env = "KAFKA_USER"', ""),
    "kafka.password_env is missing": SASL.replace('password_env = "KAFKA_WORD"', ""),
    "kafka.password_env and kafka.password_file exclude each other": SASL + 'password_file = "p"',
    "kafka.key_file is missing: kafka.certificate_file is of no use": TLS.replace(
        'key_file = "own.key"', ""
    ),
    "kafka.certificate_file is missing: kafka.key_file is of no use": TLS.replace(
        'certificate_file = "own.crt"', ""
    ),
    'kafka.ca_file belongs to TLS, and kafka.security is PLAINTEXT: set it to "SSL" or': (
        PLAIN + 'ca_file = "ca.pem"'
    ),
    "kafka.user_env belongs to SASL, and kafka.security is SSL: set it to": TLS + 'user_env = "U"',
    "kafka.token_url is missing": TOKENS.replace('token_url = "https://id/token"', ""),
    "kafka.scope belongs to OAUTHBEARER, and kafka.sasl is SCRAM": SASL + 'scope = "s"',
    "kafka.bootstrap 'SASL_SSL://kafka:9092' says SASL_SSL, and kafka.security is PLAINTEXT": (
        PLAIN.replace("kafka:", "SASL_SSL://kafka:")
    ),
    "kafka.ca_files is not known here; there are: bootstrap, ca_file": SASL + 'ca_files = "x"',
    # Nobody is told what stands in these.
    "kafka.password is refused: a secret does not belong into this file": (
        SASL + f'password = "{SECRET}"'
    ),
    "kafka.key_password is refused": TLS + f'key_password = "{SECRET}"',
    "kafka.client_secret is refused": TOKENS + f'\nclient_secret = "{SECRET}"',
    "kafka.sasl_jaas_config is refused": SASL + f'sasl_jaas_config = "{SECRET}"',
    "kafka.password_env has to be a text": SASL.replace('"KAFKA_WORD"', f'["{SECRET}"]'),
    "kafka.bootstrap 'kafka:9093' is not the address of a Kafka broker": (
        SASL.replace('"kafka:', f'"me:{SECRET}@kafka:')
    ),
}


@pytest.mark.parametrize(("complaint", "section"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_is_named_by_its_key(tmp_path: Path, complaint: str, section: str) -> None:
    with pytest.raises(WrongUse) as refused:
        read(tmp_path, section)
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'warehouse.toml'}: ")
    assert complaint in message
    assert SECRET not in message
    assert "\n" not in message
