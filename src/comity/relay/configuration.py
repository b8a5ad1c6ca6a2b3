"""The relay's configuration. The server refuses whatever it does not allow by name.

Promise    A member's certificate publishes at one subject and listens at one other; the coordinator's publishes where
           each member listens and listens where each publishes. Each member has an account of its own, that is, a
           name space with limits, joined to the coordinator's by these two subjects: members can't meet, and one can't
           use up what is meant for all. Strangers hold no member's place: places are counted by account, and a
           connection that belongs to no account yet is closed within seconds. TLS 1.3 from the first byte,
           certificates on both sides. No user of the system account, no monitoring port, no JetStream, no cluster.
           Websockets only where the consortium has them, and then with the same certificates and the same users.
Reloads    A reload that would change a setting which a running server can't change fails as a whole, and a member that
           it was to remove stays. So no such setting depends on who the members are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from comity.relay.certificates import AUTHORITY, CERTIFICATE, KEY
from comity.relay.frames import LONGEST
from comity.relay.subjects import COORDINATOR, ask_subject, reply_subject

CONNECTIONS = 3
"""Of one member at once: a process that restarts may meet what is left of the last one."""
HANDSHAKE_SECONDS, AUTHENTICATION_SECONDS = 3, 3
"""A connection that has not ended its TLS handshake, or not said CONNECT after it, is closed after so many seconds."""
MAX_CONNECTIONS = 16_384
"""Of the server as a whole, strangers included: the server counts a socket before it knows whose it is. What members
may hold is limited by account, so this number only bounds memory (about 25 kB for each silent connection). It is the
same whoever joins, and has to stay below the limit on open files."""
PENDING = 128 << 20
"""Bytes that wait for one connection before it is cut. `channel.PULLED` keeps what the coordinator asks for below."""
MEMBERS = 4096
"""So many subscriptions the coordinator may hold: a bound that stays the same whoever joins."""
LOG, PID = "relay.log", "relay.pid"
_LOG_BYTES = 16 << 20
# Not MQTT, not leaf nodes. Nobody comes by websocket where the relay does not listen for it.
_WAYS = ["STANDARD", "WEBSOCKET"]


def server_configuration(users: Mapping[str, str], *, listen: str, folder: Path, websocket: str | None = None) -> str:
    """For these members, by name with the user that their certificate makes them; the coordinator is one of them.
    `websocket` is where the relay listens for websockets too."""
    parties = [name for name in users if name != COORDINATOR]
    accounts = "\n".join([_coordinator(parties, users.get(COORDINATOR)), *(_member(p, users[p]) for p in parties)])
    return f"""\
server_name: "comity-relay"
listen: {json.dumps(listen)}

tls {{
{_tls(folder)}
  handshake_first: true
}}
{"" if websocket is None else _websocket(websocket, folder)}
authorization {{ timeout: {AUTHENTICATION_SECONDS} }}
accounts {{
{accounts}
}}

max_payload: {LONGEST}
max_connections: {MAX_CONNECTIONS}
max_control_line: 1024
max_pending: {PENDING}
write_deadline: "10s"
ping_interval: "10s"
ping_max: 2
pid_file: {json.dumps(str(folder / PID))}
log_file: {json.dumps(str(folder / LOG))}
logfile_size_limit: {_LOG_BYTES}
logfile_max_num: 3
"""


def _tls(folder: Path) -> str:
    return f"""\
  cert_file: {json.dumps(str(folder / CERTIFICATE))}
  key_file: {json.dumps(str(folder / KEY))}
  ca_file: {json.dumps(str(folder / AUTHORITY))}
  verify_and_map: true
  min_version: "1.3"
  timeout: {HANDSHAKE_SECONDS}"""


def _websocket(listen: str, folder: Path) -> str:
    return f"""
websocket {{
listen: {json.dumps(listen)}
tls {{
{_tls(folder)}
}}
handshake_timeout: "{HANDSHAKE_SECONDS}s"
}}
"""


def _coordinator(parties: Sequence[str], user: str | None) -> str:
    exports = [f'{{ stream: "{ask_subject(party)}", accounts: ["{party}"] }}' for party in parties]
    imports = [f'{{ stream: {{ account: "{party}", subject: "{reply_subject(party)}" }} }}' for party in parties]
    asks, replies = [ask_subject(party) for party in parties], [reply_subject(party) for party in parties]
    return _account(COORDINATOR, user, asks, replies, exports, imports, MEMBERS)


def _member(party: str, user: str) -> str:
    exports = [f'{{ stream: "{reply_subject(party)}", accounts: ["{COORDINATOR}"] }}']
    imports = [f'{{ stream: {{ account: "{COORDINATOR}", subject: "{ask_subject(party)}" }} }}']
    return _account(party, user, [reply_subject(party)], [ask_subject(party)], exports, imports, CONNECTIONS)


def _account(
    name: str,
    user: str | None,
    publish: Sequence[str],
    listen: Sequence[str],
    exports: Sequence[str],
    imports: Sequence[str],
    subscriptions: int,
) -> str:
    return f"""\
  "{name}" {{
    users: [ {"" if user is None else _user(user, publish, listen)} ]
    limits: {{ max_connections: {CONNECTIONS}, max_subscriptions: {subscriptions} }}
    exports: [ {", ".join(exports)} ]
    imports: [ {", ".join(imports)} ]
  }}"""


def _user(user: str, publish: Sequence[str], listen: Sequence[str]) -> str:
    # An empty list of what is allowed would allow everything, so that what nobody may do is denied by name.
    allowed = {
        name: {"allow": subjects} if subjects else {"deny": [">"]}
        for name, subjects in (("publish", list(publish)), ("subscribe", list(listen)))
    }
    ways, permissions = json.dumps(_WAYS), json.dumps(allowed)
    return f"{{ user: {json.dumps(user)}, allowed_connection_types: {ways}, permissions: {permissions} }}"
