"""Signing in at an OpenID Connect provider, for organisations that have one.

Promise    A person is signed in if the provider says so to this console, for this browser and this attempt: the ID
           token is signed by the provider's key, names this console as its audience, is not expired, and carries the
           nonce of an attempt that this browser began and that was not used before. Who may sign in, and with which
           role, is decided here: an account at the provider that no administrator bound to a person is refused.
Against    Tokens of other consoles, replayed or stolen codes, forged answers, and another site that would sign a person
           in as somebody else. Not against the provider.
Cookies    stay strict: the answer of the provider comes from another site, without them, so it is a page with a link,
           which the browser follows with its cookie.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field
from starlette.responses import RedirectResponse, Response

from comity.console.guard import Address, is_loopback
from comity.console.sign_in import TOO_MANY
from comity.console.visit import Page, Visit
from comity.errors import BadInput, Refused, Stopped
from comity.files import is_shared
from comity.methods.tables import Table, validate
from comity.untrusted.toml import parse_toml

ALGORITHMS = ("RS256", "RS512", "PS256", "ES256", "EdDSA")
"""How an ID token may be signed: with a key that the provider alone has. "none" and HMAC are not among them."""
ATTEMPT_SECONDS = 600.0
_LEEWAY_SECONDS = 60
_KEPT_SECONDS = 3600.0
_SECRET_BYTES = 32
_TIMEOUT_SECONDS = 10.0
_ATTEMPTS = "\0provider"


class ProviderTable(Table):
    """The file that `--provider` names."""

    issuer: str = Field(min_length=1)
    client_id: str = Field(min_length=1)
    secret_file: str | None = None
    words: str = Field("your organisation's sign-in", min_length=1, max_length=60)


@dataclass(frozen=True)
class Attempt:
    """What this console remembers of an attempt to sign in, in the session of the browser that began it."""

    state: str
    nonce: str
    verifier: str
    until: float


@dataclass(frozen=True)
class _Metadata:
    authorization: str
    token: str
    keys: Any
    until: float


class Provider:
    """One provider and this console's registration there. `transport` carries requests; by default over the network."""

    def __init__(
        self,
        table: ProviderTable,
        secret: str,
        address: Address,
        *,
        transport: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _require_protected(table.issuer)
        self.words = table.words
        self._table, self._secret, self._transport, self._clock = table, secret, transport, clock
        self._callback = f"{address.url}/oidc/callback"
        self._lock = Lock()
        self._known: _Metadata | None = None

    @classmethod
    def load(cls, path: Path, address: Address) -> Provider:
        """Read the provider's file, and the secret that it names."""
        missing = [name for name in ("authlib", "httpx", "joserfc") if find_spec(name) is None]
        if missing:
            raise BadInput(f"{', '.join(missing)}: missing; run: pip install 'comity[console-oidc]'")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: the provider's file can't be read ({error})", key="provider") from error
        table = validate(ProviderTable, parse_toml(text, str(path)), str(path), "")
        secret = ""
        if table.secret_file is not None:
            kept = path.parent / table.secret_file
            if is_shared(kept):
                raise BadInput(f"{kept}: others can read it; run: chmod 600 {kept}", key="secret_file")
            try:
                secret = kept.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise BadInput(f"{kept}: can't be read ({error.strerror})", key="secret_file") from error
        return cls(table, secret, address)

    def begin(self) -> tuple[str, Attempt]:
        """Where to send the browser, and what to remember."""
        from authlib.integrations.httpx_client import OAuth2Client

        state, nonce, verifier = (secrets.token_urlsafe(_SECRET_BYTES) for _ in range(3))
        attempt = Attempt(state, nonce, verifier, self._clock() + ATTEMPT_SECONDS)
        with OAuth2Client(**self._registration()) as client:
            address, _ = client.create_authorization_url(
                self._metadata().authorization,
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(address), attempt

    def finish(self, attempt: Attempt, state: str, code: str) -> str:
        """The subject that the provider vouches for; refused unless the answer is to this attempt."""
        if not hmac.compare_digest(state.encode(), attempt.state.encode()) or self._clock() > attempt.until:
            raise Refused("this answer of the provider belongs to no attempt of this browser, or came too late")
        return self._subject(self._fetch_token(code, attempt.verifier), attempt.nonce)

    def _registration(self) -> dict[str, Any]:
        return {
            "client_id": self._table.client_id,
            "client_secret": self._secret or None,
            "scope": "openid",
            "redirect_uri": self._callback,
            "code_challenge_method": "S256",
            "token_endpoint_auth_method": "client_secret_basic" if self._secret else "none",
            "transport": self._transport,
            "timeout": _TIMEOUT_SECONDS,
        }

    def _fetch_token(self, code: str, verifier: str) -> str:
        import httpx
        from authlib.common.errors import AuthlibBaseError
        from authlib.integrations.httpx_client import OAuth2Client

        try:
            with OAuth2Client(**self._registration()) as client:
                answer = client.fetch_token(
                    self._metadata().token, code=code, code_verifier=verifier, grant_type="authorization_code"
                )
        except httpx.HTTPError as error:
            raise Stopped(f"the provider is not reached ({type(error).__name__}); try again") from error
        except (AuthlibBaseError, ValueError) as error:
            raise Refused("the provider does not accept this answer; it may have been used before") from error
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise Refused("the provider gave no ID token")
        return token

    def _subject(self, token: str, nonce: str) -> str:
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            decoded = jwt.decode(token, self._metadata().keys, algorithms=list(ALGORITHMS))
        except (JoseError, ValueError, TypeError) as error:
            raise Refused("the provider's ID token is not signed with one of its keys") from error
        claims: dict[str, Any] = dict(decoded.claims)
        problem = self._problem(claims, nonce)
        if problem:
            raise Refused(f"the provider's ID token {problem}")
        return str(claims["sub"])

    def _problem(self, claims: dict[str, Any], nonce: str) -> str:
        """What is wrong with the claims of a token whose signature holds; empty if nothing is."""
        audience, now = claims.get("aud"), self._clock()
        named = audience if isinstance(audience, list) else [audience]
        expires, issued, said = claims.get("exp"), claims.get("iat"), claims.get("nonce")
        if claims.get("iss") != self._table.issuer:
            return "is of another issuer"
        if named != [self._table.client_id] and not (
            self._table.client_id in named and claims.get("azp") == self._table.client_id
        ):
            return "is for another application"
        if not isinstance(expires, int | float) or expires + _LEEWAY_SECONDS < now:
            return "has expired"
        if not isinstance(issued, int | float) or issued - _LEEWAY_SECONDS > now:
            return "is from the future"
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
            return "answers another attempt"
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            return "names nobody"
        return ""

    def _metadata(self) -> _Metadata:
        """The provider's addresses and keys, fetched again after an hour."""
        with self._lock:
            if self._known is None or self._known.until < self._clock():
                self._known = self._fetch_metadata()
            return self._known

    def _fetch_metadata(self) -> _Metadata:
        import httpx
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            with httpx.Client(transport=self._transport, timeout=_TIMEOUT_SECONDS) as client:
                place = self._table.issuer.rstrip("/") + "/.well-known/openid-configuration"
                page = client.get(place).raise_for_status().json()
                if page["issuer"] != self._table.issuer:
                    raise Refused("the provider calls itself by another name than issuer in --provider")
                authorization, token, keys = (
                    _require_protected(page[name]) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
                )
                found = KeySet.import_key_set(client.get(keys).raise_for_status().json())
        except (httpx.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            raise Stopped(f"the provider does not describe itself ({type(error).__name__}); try again later") from error
        return _Metadata(authorization, token, found, self._clock() + _KEPT_SECONDS)


def _require_protected(address: Any) -> str:
    parts = urlsplit(str(address))
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise BadInput(f"a provider is reached over https; found {str(address)[:80]!r}", key="issuer")
    return str(address)


# Pages.


def provider_pages() -> list[Page]:
    return [
        Page("/oidc/start", start, None),
        Page("/oidc/callback", show_answer, None),
        Page("/oidc/finish", finish, None),
    ]


def start(visit: Visit) -> Response:
    if not visit.console.limits.take(_ATTEMPTS):
        return visit.render("error.html.jinja", 429, sentence=TOO_MANY)
    visit.begin_session()
    assert visit.session is not None
    address, visit.session.pending = visit.console.provider.begin()
    return RedirectResponse(address, 303)


def show_answer(visit: Visit) -> Response:
    """The provider's answer, which arrives without cookies: a link that the browser follows with them."""
    return visit.render("provider.html.jinja", code=visit.long_query("code"), state=visit.long_query("state"))


def finish(visit: Visit) -> Response:
    """Each attempt is used up by its first answer, right or wrong."""
    console, session = visit.console, visit.session
    attempt = None if session is None else session.pending
    if session is None or not isinstance(attempt, Attempt):
        raise Refused("this browser began no attempt to sign in, or has used it; begin again")
    session.pending = None
    try:
        subject = console.provider.finish(attempt, visit.long_query("state"), visit.long_query("code"))
    except Refused:
        console.log(visit, "sign-in with the provider", outcome="wrong")
        raise
    person = console.people.with_subject(subject)
    if person is None:
        console.log(visit, "sign-in with the provider", outcome="not bound")
        raise Refused("your account at the provider belongs to nobody here; ask an administrator of this console")
    console.limits.give_back(_ATTEMPTS)
    visit.sign_in(person)
    console.log(visit, "sign-in with the provider")
    return visit.redirect("/")
