"""A broker that does not let everybody in: sources and jobs come in, and their secrets stay put.

One broker has all the listeners. Two runs are those of a user, with Spark: over SASL and TLS, and
with a certificate of the client's own. Everything that such a run leaves or shows is searched for
the secret.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.localbroker import Guarded, LocalBroker
from sources.kafka import Kafka, Mechanism
from tests.harness.certificates import Certificates, make_certificates
from tests.harness.places import ROOT
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
import sys, urllib.request
from cli.main import main
from infra import sparksettings
from streaming.spark import sparkjob
sparksettings._LOOPBACK_ONLY |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
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
        for said in ("PLAN ==", "PAGE", '"positions"', "keeping it"):
            assert said in ran.stdout + ran.stderr
        with world.job() as job:
            job.check()
            assert world.assert_complete(job.tables) > 0
            assert job.tables.standing().vector == world.versions
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
