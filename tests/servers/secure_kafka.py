"""A Kafka broker that wants to know who is there: by password or certificate, with and without TLS, and with rights for
each user. Whoever comes to its plain listener may do everything."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import admin

from tests.servers.certificates import authority, locked, signed
from tests.servers.kafka import Kafka, running
from tests.servers.ports import free_port

# The types of it that are published lack what is used here.
_ADMIN: Any = admin
USER = "worker"
CERTIFIED = "certified"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
_MODULE = "org.apache.kafka.common.security"


class SecureKafka(Kafka):
    """`USER` is known by each mechanism, with a password of its own for each; `CERTIFIED` has a certificate."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.passwords = {mechanism: secrets.token_hex(12) for mechanism in MECHANISMS}
        # What ends a text, begins an escape or ends a setting where it is not quoted well.
        self.passwords["PLAIN"] += ' "\\;='
        self.key_password = secrets.token_hex(12)
        self._ports: dict[str, int] = {}
        trusted = authority(folder, "trusted")
        self.ca = trusted.certificate
        server, client = signed(folder, "server", by=trusted), signed(folder, CERTIFIED, by=trusted)
        self.certificate, self.key = client.certificate, client.key
        self._locked = locked(client.key, self.key_password)
        self.keystore = folder / "keystore.pem"
        self.keystore.write_text(server.key.read_text() + server.certificate.read_text())
        super().__init__(folder, log)

    def options(self, protocol: str, mechanism: str = "", *, locked: bool = False) -> dict[str, str]:
        """What a source, a sink or the edges of a query need to be let in; `locked` with a key behind a password."""
        found = {"bootstrap_servers": f"127.0.0.1:{self._ports[protocol]}", "security_protocol": protocol}
        if mechanism:
            found |= {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": self.passwords[mechanism]}
        if protocol.endswith("SSL"):
            found["ssl_ca_location"] = str(self.ca)
        if protocol == "SSL":
            found |= {"ssl_certificate_location": str(self.certificate), "ssl_key_location": str(self.key)}
        if locked:
            found |= {"ssl_key_location": str(self._locked), "ssl_key_password": self.key_password}
        return found

    def allow(self, kind: str, prefix: str, *operations: str) -> None:
        """Both users may do so with everything of that kind whose name begins so."""
        pattern, allowed = _ADMIN.ResourcePatternType.PREFIXED, _ADMIN.AclPermissionType.ALLOW
        rights = [
            _ADMIN.AclBinding(
                *(_ADMIN.ResourceType[kind], prefix, pattern, user, "*", _ADMIN.AclOperation[operation], allowed)
            )
            for user in (f"User:{USER}", f"User:CN={CERTIFIED}")
            for operation in operations
        ]
        # A client that nobody holds is gone before it has an answer.
        client = _ADMIN.AdminClient({"bootstrap.servers": self.bootstrap})
        for made in client.create_acls(rights).values():
            made.result(30)

    def settings(self, data: Path, controller: int) -> dict[str, str]:
        found = super().settings(data, controller)
        self._ports = {protocol: free_port() for protocol in _PROTOCOLS}
        own = "".join(f",{protocol}://127.0.0.1:{port}" for protocol, port in self._ports.items())
        found["listeners"] += own
        found["advertised.listeners"] += own
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **{name: name for name in _PROTOCOLS}}
        found |= {
            "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in protocols.items()),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        password = self.passwords["PLAIN"].replace("\\", "\\\\").replace('"', '\\"')
        for listener in ("sasl_plaintext", "sasl_ssl"):
            login = f"listener.name.{listener}"
            known = f'{_MODULE}.plain.PlainLoginModule required user_{USER}="{password}";'
            found[f"{login}.plain.sasl.jaas.config"] = known
            for mechanism in MECHANISMS[1:]:
                found[f"{login}.{mechanism.lower()}.sasl.jaas.config"] = f"{_MODULE}.scram.ScramLoginModule required;"
        return found

    def users(self) -> list[str]:
        found = []
        for mechanism in MECHANISMS[1:]:
            found += ["--add-scram", f"{mechanism}=[name={USER},password={self.passwords[mechanism]}]"]
        return found


def running_secure_kafka(log: Path) -> AbstractContextManager[SecureKafka]:
    return running(SecureKafka, log)
