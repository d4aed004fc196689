"""A Kafka cluster as a client sees it: its addresses, and what lets a client in.

Rules:

- A `Kafka` holds no secret. It holds the places of secrets (variables, files), and reads them each
  time a client is made. So it may be printed, pickled and sent to executors, which read them there.
- A message names the key in `[kafka]`, and never what stands in a variable or in a file. It does
  not even name the variable, because people put the secret itself there by mistake.
- All clients read committed records only.

`client` are the settings of librdkafka; those of Spark's JVM are in streaming/spark/access.py.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import quote

from protocols.errors import WrongUse

#: Kafka's own words for how a listener is reached.
Security: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

_ADDRESS = re.compile(
    rf"((?P<security>{'|'.join(get_args(Security))})://)?([\w.-]+|\[[0-9a-f:.]+\])(:\d{{1,5}})?",
    re.IGNORECASE | re.ASCII,
)
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_KEY = "-----BEGIN PRIVATE KEY-----"


@dataclass(frozen=True)
class User:
    """A client's name and password; with OAUTHBEARER its id and its secret."""

    name: str
    password: str

    def __repr__(self) -> str:
        return "User(…)"


@dataclass(frozen=True)
class Kafka:
    """The addresses of a cluster, and where the things are that let a client in."""

    bootstrap: str
    security: Security = "PLAINTEXT"
    sasl: Mechanism | None = None
    #: The authorities that may vouch for a broker; None for those of the system.
    ca_file: Path | None = None
    #: The client's own certificate and its key, for brokers that ask for one.
    certificate_file: Path | None = None
    key_file: Path | None = None
    #: Names of environment variables.
    user_env: str | None = None
    password_env: str | None = None
    password_file: Path | None = None
    #: Where OAUTHBEARER gets its tokens, and what it asks for.
    token_url: str | None = None
    scope: str | None = None

    def __post_init__(self) -> None:
        checked_bootstrap(self.bootstrap, self.security)

    def client(self) -> dict[str, Any]:
        """The settings that every client of librdkafka needs; WrongUse if something is missing."""
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        if self.security == "PLAINTEXT":
            return found
        self.refuse_bad_files()
        found["security.protocol"] = self.security
        places = {
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
        }
        found |= {key: str(file) for key, file in places.items() if file is not None}
        if self.sasl is None:
            return found
        user = self.user()
        found["sasl.mechanism"] = self.sasl
        if self.sasl != "OAUTHBEARER":
            return found | {"sasl.username": user.name, "sasl.password": user.password}
        found |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "sasl.oauthbearer.client.id": user.name,
            "sasl.oauthbearer.client.secret": user.password,
        }
        return found | ({"sasl.oauthbearer.scope": self.scope} if self.scope else {})

    def consumer(self) -> dict[str, Any]:
        """The settings of a consumer of librdkafka."""
        return self.client() | {"isolation.level": "read_committed"}

    def user(self) -> User:
        """The user, read from its places; WrongUse if one of them is empty."""
        if self.password_file is not None:
            password = _text_of(self.password_file, "password_file").rstrip("\r\n")
            place = f"password_file: {self.password_file}"
        else:
            password, place = _variable(self.password_env, "password_env"), "password_env: it"
        if not password or "\n" in password:
            problem = "has more than one line" if password else "is empty"
            raise WrongUse(f"kafka.{place} {problem}; it has to hold the password and nothing else")
        return User(_variable(self.user_env, "user_env"), password)

    def without_secret(self, text: str) -> str:
        """Somebody else's words, in which the password is not repeated, however it is written."""
        if self.sasl is None:
            return text
        password = self.user().password
        for form in (password, json.dumps(password)[1:-1], quote(password, safe="")):
            text = text.replace(form, "…")
        return text

    def refuse_bad_files(self) -> None:
        """WrongUse for a file that is not there, or not in a form that all clients can read."""
        if self.ca_file is not None and _CERTIFICATE not in _text_of(self.ca_file, "ca_file"):
            raise WrongUse(
                f"kafka.ca_file: {self.ca_file} has no certificate in it ({_CERTIFICATE}); name the"
                " authority's certificate in PEM form"
            )
        if self.certificate_file is None or self.key_file is None:
            return
        if _CERTIFICATE not in _text_of(self.certificate_file, "certificate_file"):
            raise WrongUse(
                f"kafka.certificate_file: {self.certificate_file} has no certificate in it"
                f" ({_CERTIFICATE}); name the client's certificate in PEM form"
            )
        if _KEY not in _text_of(self.key_file, "key_file"):
            raise WrongUse(
                f"kafka.key_file: {self.key_file} has no key that Kafka's clients can all read"
                f" ({_KEY}, without a password); convert it: openssl pkcs8 -topk8 -nocrypt"
                " -in KEY -out NEW"
            )


def checked_bootstrap(bootstrap: str, security: Security = "PLAINTEXT") -> str:
    """The broker addresses as Kafka's clients accept them; WrongUse if they are malformed."""
    for each in bootstrap.split(","):
        # Whatever stands before an @ may be a password.
        address = each.strip().rpartition("@")[2]
        found = _ADDRESS.fullmatch(each.strip())
        if found is None:
            raise WrongUse(
                f"{address!r} is not the address of a Kafka broker; it has the form HOST:PORT"
            )
        said = (found["security"] or security).upper()
        if said != security:
            raise WrongUse(
                f"{address!r} says {said}, and kafka.security is {security}: set kafka.security ="
                f' "{said}", and leave {said}:// out here'
            )
    return bootstrap


def _variable(name: str | None, key: str) -> str:
    value = os.environ.get(name or "")
    if not value:
        raise WrongUse(
            f"kafka.{key} names an environment variable that is not set; set it, or name another"
            " one (its name, not what it holds)"
        )
    return value


def _text_of(file: Path, key: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUse(
            f"kafka.{key}: cannot read {file}: {error.strerror}; correct the path, which counts"
            " from the configuration's directory, or the file's permissions"
        ) from None
    except UnicodeDecodeError:
        raise WrongUse(f"kafka.{key}: {file} is not text; PEM files and passwords are") from None
