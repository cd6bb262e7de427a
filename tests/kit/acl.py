"""Rights on a broker, and requests signed by hand.

4.9: ``plain_acl.yml``, which it reads anew within a second of a change. It starts with the loopback address on its white list
(``open_to_all``) and closes when the test begins (``closed``), so that the kit can ask it unsigned until then.

5.3 and newer: users and policies that the broker keeps itself. It starts with an administrator (``ASKING``), who signs for the
kit and makes the others (``grant``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import remoting

WHITE_LISTED = 'globalWhiteRemoteAddresses:\n- "127.0.0.1"\n'


@dataclass(frozen=True, slots=True)
class Account:
    """An access key with its secret (RocketMQ wants seven characters of each) and its rights by topic; ``DENY`` otherwise."""

    key: str
    secret: str
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """What lets the Java client sign."""
        return {"access_key": self.key, "secret_key": self.secret}

    def signed(self, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """A request's fields with access key and signature: HMAC-SHA1 of values in order of their names, and body."""
        named = {**fields, "AccessKey": self.key}
        content = "".join(named[name] for name in sorted(named)).encode() + body
        digest = hmac.new(self.secret.encode(), content, hashlib.sha1).digest()
        return {**named, "Signature": base64.b64encode(digest).decode()}


ADMINISTRATOR = Account("administrator", "admin-secret")

ASKING = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ADMINISTRATOR.key, "password": ADMINISTRATOR.secret}),
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""Settings of a broker of 5.3 or newer that knows users and asks everyone, for everything."""


def grant(address: str, accounts: Sequence[Account]) -> None:
    """Make users of a broker with ``ASKING``: each may read its topics, and as any group; nothing else."""
    for account in accounts:
        user = {"username": account.key, "password": account.secret, "userType": "Normal"}
        _administer(address, remoting.CREATE_USER, {"username": account.key}, user)
        if account.topics:
            resources = [*(f"Topic:{topic}" for topic in account.topics), "Group:*"]
            entries = [
                {"resource": resource, "actions": ["Sub", "Get", "Update"], "decision": "Allow"}
                for resource in resources
            ]
            policy = {"policyType": "Custom", "entries": entries}
            subject = f"User:{account.key}"
            _administer(
                address,
                remoting.CREATE_ACL,
                {"subject": subject},
                {"subject": subject, "policies": [policy]},
            )


def revoke(address: str, account: Account) -> None:
    """Take away all that ``grant`` allowed."""
    _administer(address, remoting.DELETE_ACL, {"subject": f"User:{account.key}"}, {})


def _administer(address: str, code: int, fields: dict[str, str], content: Mapping[str, Any]) -> None:
    body = json.dumps(content).encode()
    answer = remoting.request(address, code, ADMINISTRATOR.signed(fields, body), body)
    if answer.code != 0:
        raise RuntimeError(f"request {code} was answered with {answer.code}: {answer.remark}")


def open_to_all(home: Path, accounts: Sequence[Account]) -> None:
    """Write the file below a broker's home so that whoever connects from this machine may do everything."""
    _write(home, WHITE_LISTED + _accounts(accounts))


def closed(home: Path, accounts: Sequence[Account]) -> None:
    """Write it so that only the accounts may do anything, each what it may."""
    _write(home, _accounts(accounts))


def _accounts(accounts: Sequence[Account]) -> str:
    lines = ["accounts:"]
    for account in accounts:
        lines += [f"- accessKey: {account.key}", f"  secretKey: {account.secret}", "  admin: false"]
        lines += ["  defaultTopicPerm: DENY", "  defaultGroupPerm: SUB"]
        if account.topics:
            lines += ["  topicPerms:", *(f"  - {topic}={right}" for topic, right in account.topics.items())]
    return "\n".join(lines) + "\n"


def _write(home: Path, text: str) -> None:
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name("plain_acl.new")
    fresh.write_text(text)
    fresh.replace(path)
