"""Questions to etcd's JSON gateway: over TLS or not, as a user or as nobody; tokens that ended are renewed.

A user shows a token, which etcd gives for name and password and forgets when it was not used for its time (five minutes by
default) or when etcd starts again. The password is read anew for each token, so that a file may have a new one.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.errors import Invalid, Unavailable
from tiered.membership.web import JsonAnswer, JsonServers
from tiered.settings import Etcd
from tiered.text.references import resolve

ASK_SECONDS = 3.0
"""How long one server is waited for."""
_ENDED = ("invalid auth token", "revision of auth store is old")
_ADVICE = {
    "alert unknown ca": "etcd does not trust the certificate that is shown: correct etcd.certificate and etcd.key",
    "alert bad certificate": "etcd does not take the certificate that is shown: correct etcd.certificate and etcd.key",
    "certificate required": "etcd asks for a certificate: set etcd.certificate and etcd.key",
    "EOF occurred in violation of protocol": (  # what is read after the alert, as often as not
        "if etcd asks for a certificate, set etcd.certificate and etcd.key"
    ),
    "CERTIFICATE_VERIFY_FAILED": "set etcd.ca to the authority that signed its certificate, and ask it by a name in that",
    "WRONG_VERSION_NUMBER": "if etcd speaks no TLS, write etcd:// instead of etcds://",
    "record layer failure": "if etcd speaks no TLS, write etcd:// instead of etcds://",
    "closed connection without response": "if etcd wants TLS, write etcds:// instead of etcd://",
}
"""What to do, by what is found where nobody answers."""


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """``tls``: ``None``, without; ``password`` may be a reference (``text/references.py``)."""

    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""


def etcd_access(settings: Etcd, *, tls: bool) -> EtcdAccess:
    """As the settings have it. ``Invalid`` for files that cannot be read, and for a password that is not where it is said."""
    if not tls:
        resolve(settings.password, what="etcd.password")
        return EtcdAccess(None, settings.user, settings.password)
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
    except OSError as error:
        raise _unreadable("etcd.ca", settings.ca, error) from None
    if settings.certificate:
        try:
            context.load_cert_chain(settings.certificate, settings.key)
        except OSError as error:
            files = f"{settings.certificate}, {settings.key}"
            raise _unreadable("etcd.certificate, etcd.key", files, error) from None
    resolve(settings.password, what="etcd.password")
    return EtcdAccess(context, settings.user, settings.password)


class EtcdClient:
    """For one thread, but ``close``."""

    def __init__(self, servers: Sequence[tuple[str, int]], access: EtcdAccess) -> None:
        self._scheme = "http" if access.tls is None else "https"
        urls = [self._url(*server) for server in servers]
        self._servers = JsonServers("etcd", urls, ASK_SECONDS, context=access.tls, advice=_advice)
        self._access = access
        self._token = ""

    def ask(self, verb: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to one question. ``Unavailable``, and ``Invalid`` where etcd does not let this user do it."""
        answer = self._servers.ask("POST", f"/v3/{verb}", body, self._shown())
        if self._token and any(ended in _said(answer) for ended in _ENDED):
            self._token = ""
            answer = self._servers.ask("POST", f"/v3/{verb}", body, self._shown())
        if answer.status != 200:
            raise self._refused(verb, answer)
        return answer.body

    def lines(self, verb: str, body: Mapping[str, Any], seconds: float) -> Iterator[Mapping[str, Any]]:
        """See ``JsonServers.lines``. Without a token that holds there are none: the next question renews it."""
        headers = {"Authorization": self._token} if self._token else None
        return self._servers.lines("POST", f"/v3/{verb}", body, headers, seconds)

    def close(self) -> None:
        """End a stream, and let no other begin."""
        self._servers.close()

    def _shown(self) -> Mapping[str, str] | None:
        """The header that says who asks; a new token where there is none."""
        if not self._access.user:
            return None
        if not self._token:
            password = resolve(self._access.password, what="etcd.password")
            body = {"name": self._access.user, "password": password}
            answer = self._servers.ask("POST", "/v3/auth/authenticate", body)
            if answer.status != 200 or not isinstance(answer.body.get("token"), str):
                raise self._refused("auth/authenticate", answer)
            self._token = answer.body["token"]
        return {"Authorization": self._token}

    def _refused(self, verb: str, answer: JsonAnswer) -> Invalid | Unavailable:
        said, user = _said(answer), self._access.user
        if "authentication failed" in said:
            hint = "set etcd.user and etcd.password to those of a user of etcd"
            return Invalid("etcd does not know this user with this password", user=user, hint=hint)
        if "authentication is not enabled" in said:
            return Invalid("etcd has no users", user=user, hint="unset etcd.user and etcd.password")
        if "user name is empty" in said:
            hint = "set etcd.user and etcd.password"
            return Invalid("etcd lets nobody without a name and a password ask", found=said, hint=hint)
        if "permission denied" in said:
            return Invalid(
                "etcd's user may not read and write read nodes", user=user, request=verb,
                hint="give one of its roles readwrite on the prefix of the membership: etcdctl role grant-permission"
                " ROLE readwrite --prefix=true PREFIX/",
            )  # fmt: skip
        return Unavailable(
            "etcd does not do what it is asked", request=verb, status=answer.status, found=said,
        )  # fmt: skip

    def _url(self, host: str, port: int) -> str:
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"


def _advice(found: str) -> str | None:
    return next((advice for sign, advice in _ADVICE.items() if sign.lower() in found.lower()), None)


def _said(answer: JsonAnswer) -> str:
    return str(answer.body.get("message") or answer.body.get("error") or "")[:200]


def _unreadable(key: str, files: str, error: OSError) -> Invalid:
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else error.strerror
    return Invalid(f"{key} cannot be read as PEM", found=files[:300], reason=reason or "not PEM")
