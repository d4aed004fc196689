"""A broker that does not let everybody in: sources and jobs come in, and their secrets stay put.

One broker has all the listeners. Two runs are those of a user, with Spark: over SASL and TLS, and
with a certificate of the client's own. Everything that such a run leaves or shows is searched for
the secret.
"""

import base64
import json
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs, unquote

import pytest
from confluent_kafka import KafkaError

from infra.localbroker import LOOPBACK, Guarded, LocalBroker
from protocols.errors import Unreachable, WrongUse
from protocols.exchange.slices import Slice
from protocols.views.catalog import catalog_from_json
from sources import access
from sources.access import let_in
from sources.kafka import Kafka, Mechanism
from sources.simulated.database import SourceDatabase
from streaming.job.slices import Batch, Swept
from tests.harness.certificates import Certificates, make_certificates
from tests.harness.cluster import InThisProcess
from tests.harness.places import ROOT
from tests.harness.running import ended
from tests.harness.waiting import patience
from tests.harness.world import World, start

USER = "warehouse"
#: With all that a quoting may get wrong.
SECRET = 'open"sesame\\${x}'
_SECONDS = 10.0


@dataclass(frozen=True)
class Place:
    """The broker, and what belongs to it."""

    broker: LocalBroker
    certificates: Certificates

    def sasl(self, mechanism: Mechanism = "SCRAM-SHA-512") -> Kafka:
        """SASL over TLS."""
        return Kafka(
            self.broker.listener("SASL_TLS"),
            "SASL_SSL",
            mechanism,
            ca_file=self.certificates.authority,
            user_env="KAFKA_USER",
            password_env="KAFKA_WORD",
        )

    def tls(self) -> Kafka:
        """TLS with a certificate of our own."""
        files = self.certificates
        return Kafka(
            self.broker.listener("MTLS"),
            "SSL",
            ca_file=files.authority,
            certificate_file=files.certificate,
            key_file=files.key,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    guarded = Guarded(certificates.broker, certificates.authority, {USER: SECRET})
    with LocalBroker(guarded=guarded) as broker:
        yield Place(broker, certificates)


@pytest.fixture(autouse=True)
def _user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USER", USER)
    monkeypatch.setenv("KAFKA_WORD", SECRET)
    monkeypatch.delenv("VIEWSWEEP_BROKER", raising=False)


#: `viewsweep` that also prints what Spark knows and shows of the run, its web pages included.
_TALKATIVE = """
import os, sys, urllib.request
from cli.main import main
from infra import sparksettings
from streaming.spark import sparkjob
sparksettings._LOOPBACK_ONLY |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
# As docs/kafka.md has it for executors; and one that is shown, or the search would prove nothing.
sparksettings._LOOPBACK_ONLY |= {
    "spark.executorEnv.KAFKA_PASSWORD": os.environ["KAFKA_WORD"],
    "spark.executorEnv.KAFKA_USER": os.environ["KAFKA_USER"] + " is shown",
}
run = sparkjob._Stream._run
def talkative(self, query):
    run(self, query)
    context = query._jsq.sparkSession().sparkContext()
    print("PLAN", query._jsq.explainInternal(True))
    print("PROGRESS", query.recentProgress)
    print("CONF", context.getConf().toDebugString())
    api = f"/api/v1/applications/{context.applicationId()}"
    pages = "/environment/", "/StreamingQuery/", f"{api}/environment", f"{api}/sql?details=true"
    for page in pages:
        with urllib.request.urlopen(context.uiWebUrl().get() + page) as answer:
            print("PAGE", answer.read().decode())
sparkjob._Stream._run = talkative
main()
"""


@pytest.mark.parametrize("way", ["sasl", "tls"])
def test_a_job_with_spark_keeps_the_view_and_the_secret(
    place: Place, way: str, topic: str, tmp_path: Path
) -> None:
    kafka = getattr(place, way)()
    with World(tmp_path, place.broker.bootstrap, topic, kafka=kafka) as world:
        world.publish()
        with world.job() as job:
            start(job)
        world.commit_at_random(random.Random(3), 40)
        world.wait_until_published()
        ran = _run(world, "--json", "--summary", str(tmp_path / "summary.json"))
        assert ran.returncode == 0, ran.stderr
        for said in ("PLAN ==", f"{USER} is shown", '"positions"', "keeping it"):
            assert said in ran.stdout + ran.stderr
        with world.job() as job:
            job.check()
            assert world.assert_complete(job.tables) > 0
            assert job.tables.standing().vector == world.versions
        world.trace("sweep")
    secrets = [SECRET.encode(), b"sesame", place.certificates.key.read_bytes().splitlines()[1]]
    shown = (ran.stdout + ran.stderr).encode()
    for text in (shown, *(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())):
        assert not any(secret in text for secret in secrets)


def _run(world: World, *options: str) -> "subprocess.CompletedProcess[str]":
    arguments = ["run", "--once", "--config", str(world.write_configuration()), *options]
    return subprocess.run(
        [sys.executable, "-c", _TALKATIVE, *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(world.directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(),
    )


@dataclass
class _Watched(InThisProcess):
    """Executors that are sent no secret, and find updates in the topics that the driver has not."""

    world: World

    def sweep(self, batch: Batch, slices_: Sequence[Slice]) -> list[Swept]:
        assert b"sesame" not in pickle.dumps(batch)
        self.world.commit_at_random(random.Random(5), 40)
        self.world.wait_until_published()
        return super().sweep(batch, slices_)


def test_executors_come_in_by_themselves(place: Place, topic: str, tmp_path: Path) -> None:
    with World(tmp_path, place.broker.bootstrap, topic, kafka=place.sasl()) as world:
        world.publish()
        changes: dict[str, Any] = {"executors": _Watched(2, world), "executor_rows": 1}
        with world.job(protocol="batched-sweep", **changes) as job:
            start(job)
            world.commit_at_random(random.Random(4), 40)
            world.wait_until_published()
            assert job.take(world.records_after(job)) > 0
            assert job.measures.batches_on_executors == 1
            assert world.assert_complete(job.tables) > 0


@pytest.mark.parametrize("mechanism", get_args(Mechanism)[:3])
def test_each_mechanism_lets_us_in(place: Place, mechanism: Mechanism) -> None:
    let_in(place.sasl(mechanism), _SECONDS)
    without = replace(place.sasl(mechanism), security="SASL_PLAINTEXT", ca_file=None)
    let_in(replace(without, bootstrap=place.broker.listener("SASL")), _SECONDS)


class _Tokens(BaseHTTPRequestHandler):
    """Gives tokens without a signature, which the local broker accepts, to who knows the secret."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        asked = parse_qs(self.rfile.read(length).decode())
        # Both halves may be percent-encoded, as OAuth wants it.
        knows = unquote(given) == f"{USER}:{SECRET}" and asked["scope"] == ["kafka"]
        claims = {"sub": USER, "iat": int(time.time()), "exp": int(time.time()) + 600}
        token = f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."
        form = {"access_token": token, "expires_in": 600} if knows else {"error": f"no {given}"}
        self.send_response(200 if knows else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(form).encode())

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""


def _encoded(form: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(form).encode()).rstrip(b"=").decode()


def test_a_token_lets_us_in_and_who_gets_none_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_WORD", f"not-{SECRET}")
    with ThreadingHTTPServer((LOOPBACK, 0), _Tokens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{LOOPBACK}:{server.server_port}/token"
        kafka = replace(place.sasl("OAUTHBEARER"), token_url=url, scope="kafka")
        let_in(kafka, _SECONDS)
        with pytest.raises(WrongUse, match=r"kafka.token_url .* gives no token") as refused:
            let_in(replace(kafka, password_env="WRONG_WORD"), 60.0)
        assert "sesame" not in str(refused.value)
        server.shutdown()
    with pytest.raises(Unreachable, match="Failed to acquire SASL OAUTHBEARER token"):
        let_in(kafka, 1.0)


def _stranger(place: Place) -> Kafka:
    return replace(place.sasl(), ca_file=place.certificates.stranger)


def _no_authority(place: Place) -> Kafka:
    return replace(place.sasl(), ca_file=None)


def _no_certificate(place: Place) -> Kafka:
    return replace(place.tls(), certificate_file=None, key_file=None)


def _foreign_key(place: Place) -> Kafka:
    files = place.certificates
    return replace(place.tls(), key_file=files.authority.with_suffix(".key"))


def _plain_at_tls(place: Place) -> Kafka:
    return Kafka(place.broker.listener("MTLS"))


def _sasl_without_tls_at_tls(place: Place) -> Kafka:
    return replace(place.sasl(), security="SASL_PLAINTEXT", ca_file=None)


def _tls_at_plain(place: Place) -> Kafka:
    return replace(place.sasl(), bootstrap=place.broker.bootstrap)


def _sasl_at_tls(place: Place) -> Kafka:
    user = place.sasl()
    return replace(
        place.tls(),
        security="SASL_SSL",
        sasl=user.sasl,
        user_env=user.user_env,
        password_env=user.password_env,
    )


def _wrong_password(place: Place) -> Kafka:
    return replace(place.sasl(), password_env="WRONG_WORD")


REFUSED = {
    _wrong_password: "does not accept user and password (kafka.sasl = SCRAM-SHA-512): correct what"
    " kafka.user_env and kafka.password_env hold",
    _stranger: "is not from an authority of kafka.ca_file (",
    _no_authority: "is not from an authority of the system, since kafka.ca_file is not set",
    _no_certificate: "wants a certificate of ours: set kafka.certificate_file and kafka.key_file",
    _foreign_key: "kafka.key_file is not the key of kafka.certificate_file",
    _plain_at_tls: 'speaks TLS, and kafka.security is PLAINTEXT: set kafka.security = "SSL" or',
    _sasl_without_tls_at_tls: "speaks TLS, and kafka.security is SASL_PLAINTEXT: set"
    ' kafka.security = "SASL_SSL"',
    _tls_at_plain: "does not speak TLS, and kafka.security is SASL_SSL: name its TLS port",
    _sasl_at_tls: "has no SASL at this port, and kafka.security is SASL_SSL: set"
    ' kafka.security = "SSL"',
}


@pytest.mark.parametrize(
    ("given", "complaint"), REFUSED.items(), ids=[each.__name__ for each in REFUSED]
)
def test_who_is_not_let_in_is_told_why_at_once(
    place: Place, given: Callable[[Place], Kafka], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_WORD", f"not-{SECRET}")
    with pytest.raises(WrongUse) as refused:
        let_in(given(place), 60.0)
    assert complaint in str(refused.value)
    assert "sesame" not in str(refused.value)


def test_a_mechanism_that_the_broker_does_not_offer_is_told_with_those_it_does(
    place: Place,
) -> None:
    said = "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism:"
    heard = KafkaError(KafkaError._AUTHENTICATION, f"{said} supported mechanisms: PLAIN (after 1ms")
    with pytest.raises(WrongUse, match=r"does not offer SCRAM-SHA-256, .* it offers: PLAIN$"):
        access._refuse(place.sasl("SCRAM-SHA-256"), heard)


def test_a_client_without_sasl_is_told_that_it_may_want_some(place: Place) -> None:
    with pytest.raises(
        Unreachable, match=r"perhaps .* wants another kafka.security than PLAINTEXT"
    ):
        let_in(Kafka(place.broker.listener("SASL")), 1.0)


def test_commands_say_it_in_one_line_and_end(
    place: Place,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command that asks the broker, with a wrong password."""
    monkeypatch.setenv("WRONG_WORD", f"not-{SECRET}")
    with World(tmp_path, place.broker.bootstrap, topic, kafka=place.sasl()) as world:
        world.publish()
        file = world.write_configuration()
        code, said, _ = ended(
            ["sources", "inspect", "--config", file, "--json"], capsys, monkeypatch
        )
        assert code == 0
        assert "sesame" not in said
        wrong = world.write_configuration(toml={"KAFKA_WORD": "WRONG_WORD"})
        for command in (["run", "--once"], ["sources", "inspect"]):
            code, said, complaint = ended([*command, "--config", wrong], capsys, monkeypatch)
            assert code == 2
            assert "does not accept user and password" in complaint
            assert "sesame" not in said + complaint


def test_a_source_publishes_by_the_same_section(
    place: Place,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publisher runs in a process of its own; with a wrong password that process ends."""
    SourceDatabase.create(tmp_path / "s.db", "s", catalog_from_json(_SHOP), {}).close()
    given = vars(place.sasl()).items()
    section = "".join(f'{key} = "{value}"\n' for key, value in given if value is not None)
    file = tmp_path / "warehouse.toml"
    file.write_text("[kafka]\n" + section)
    command = [*_SERVE, str(tmp_path / "s.db"), "--topic", topic, "--config", str(file)]
    monkeypatch.setenv("KAFKA_WORD", f"not-{SECRET}")
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert ran.returncode == 2
    assert "does not accept user and password" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "sesame" not in ran.stdout + ran.stderr


_SHOP = {"s": {"relations": {"r": {"columns": {"id": "BIGINT"}, "key": ["id"]}}}}
_SERVE = [sys.executable, "-m", "cli.main", "sources", "serve"]
