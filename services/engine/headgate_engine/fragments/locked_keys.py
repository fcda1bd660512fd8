"""Keys of certificates behind a password.

Kafka's Java client asks Java for a cipher by a name that Java 17 does not know for what openssl writes (PBES2). The JVM
can read such a key all the same, by the name that its parameters have.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from headgate_common.errors import HeadgateError
from headgate_common.kafka_reasons import KAFKA_REFUSED

_LOCKED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END ENCRYPTED PRIVATE KEY-----", re.DOTALL)
# Under its name and its number.
_PBES2 = ("PBES2", "1.2.840.113549.1.5.13")
_DECRYPT = 2


def unlocked(pem: str, password: str, path: str) -> str:
    """The key without its password; as it is where it has none."""
    found = _LOCKED.search(pem)
    if found is None:
        return pem
    try:
        plain = _decrypted(base64.b64decode("".join(found[1].split()), validate=True), password)
    except (Py4JError, binascii.Error):
        # What the JVM says has nothing of the key, and nothing that helps.
        raise HeadgateError(KAFKA_REFUSED, f"the key in {path} cannot be read with ssl_key_password") from None
    return f"-----BEGIN PRIVATE KEY-----\n{base64.encodebytes(plain).decode()}-----END PRIVATE KEY-----\n"


def _decrypted(locked: bytes, password: str) -> bytes:
    gateway: Any = SparkContext._gateway
    crypto = gateway.jvm.javax.crypto
    key = crypto.EncryptedPrivateKeyInfo(locked)
    parameters, name = key.getAlgParameters(), key.getAlgName()
    if name in _PBES2:
        name = parameters.toString()
    letters = gateway.new_array(gateway.jvm.char, len(password))
    for index, letter in enumerate(password):
        letters[index] = letter
    secret = crypto.SecretKeyFactory.getInstance(name).generateSecret(crypto.spec.PBEKeySpec(letters))
    cipher = crypto.Cipher.getInstance(name)
    cipher.init(_DECRYPT, secret, parameters)
    return bytes(key.getKeySpec(cipher).getEncoded())
