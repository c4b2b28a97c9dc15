"""The mechanisms by themselves: bytes in, bytes out, and whatever a hostile client may send."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.apis.scram_credentials import MAX_SALTED, _upsertion
from millstream.broker.login import credentials
from millstream.broker.login.credentials import CredentialStore, from_salted, make_credential
from millstream.broker.login.jaas import parse_jaas, plain_users
from millstream.broker.login.jwks import Jwks, _content
from millstream.broker.login.mechanism import LoginRefused, Step, Work
from millstream.broker.login.oauth import Expected, InvalidToken, OAuthBearer, Unsecured, check_token
from millstream.broker.login.plain import Plain
from millstream.broker.login.scram import Scram
from millstream.broker.tokens import Tokens
from millstream.client.sasl import Scram as ClientScram
from millstream.client.security import Sasl
from millstream.cluster.image import Image
from millstream.cluster.scram import AlterScram, alter_scram
from millstream.cluster.security_records import Account, ApiKey, Token, TokenGone
from millstream.cluster.security_records import Scram as Record
from tests.support.secured import TokenServer, encoded
from tests.support.waiting import wait_until


def record(user: str, mechanism: str, password: str, iterations: int = 4096) -> Record:
    made = make_credential(mechanism, password, iterations)
    number = 1 if mechanism == "SCRAM-SHA-256" else 2
    return Record(user, number, made.salt.hex(), made.stored_key.hex(), made.server_key.hex(), iterations)


@pytest.fixture
def image() -> Image:
    image = Image()
    image.apply(
        [
            record("alice", "SCRAM-SHA-256", "secret"),
            record("alice", "SCRAM-SHA-512", "secret", 8192),
            record("odd,na=me", "SCRAM-SHA-512", "pä55\u2028"),
            Account("sa-1", "app"),
            ApiKey("KEY", "sa-1", hashlib.sha256(b"key-secret").hexdigest(), 0),
            ApiKey("OLD", "sa-1", hashlib.sha256(b"key-secret").hexdigest(), 0, 1),
            Token("token", "User:owner", "User:owner", (), 0, 2**60, 2**60),
            Token("stale", "User:owner", "User:owner", (), 0, 5, 2**60),
        ],
        1,
    )
    return image


@pytest.fixture
def store(image: Image) -> CredentialStore:
    return CredentialStore(lambda: image, lambda: Tokens("key", lambda: image), lambda: "key")


def step(outcome: Step | Work) -> Step:
    return outcome.run() if isinstance(outcome, Work) else outcome


# ---------------------------------------------------------------------- SCRAM


def scram_login(
    store: CredentialStore, mechanism: str, user: str, password: str, extension: str = ""
) -> Step:
    client = ClientScram(Sasl(mechanism, user, password), "client+nonce")
    if extension:
        client._bare += extension
    server = Scram(mechanism, store)
    challenge = step(server.respond(client.first)).response
    last = step(server.respond(client.answer(challenge)))
    client.finish(last.response)
    return last


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(store: CredentialStore, mechanism: str) -> None:
    done = scram_login(store, mechanism, "alice", "secret")
    assert done.identity is not None and done.identity.principal == "User:alice"
    for user, password in (("alice", "Secret"), ("nobody", "secret"), ("alice", "")):
        with pytest.raises(LoginRefused) as refused:
            scram_login(store, mechanism, user, password)
        assert str(refused.value).endswith(f"invalid credentials with SASL mechanism {mechanism}")


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    made = from_salted("SCRAM-SHA-256", hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096), salt, 4096)
    assert made == make_credential("SCRAM-SHA-256", "pencil", 4096, salt)
    assert base64.b64encode(made.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(made.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_scram_of_names_and_passwords_that_are_hard(store: CredentialStore) -> None:
    done = scram_login(store, "SCRAM-SHA-512", "odd,na=me", "pä55\u2028")
    assert done.identity is not None and done.identity.principal == "User:odd,na=me"


def test_scram_by_delegation_token(store: CredentialStore) -> None:
    password = base64.b64encode(Tokens("key", Image).hmac_of("token")).decode()
    done = scram_login(store, "SCRAM-SHA-256", "token", password, ",tokenauth=true")
    assert done.identity is not None
    assert (done.identity.principal, done.identity.by_token) == ("User:owner", True)
    for user in ("stale", "none"):
        with pytest.raises(LoginRefused):
            scram_login(store, "SCRAM-SHA-256", user, password, ",tokenauth=true")
        with pytest.raises(LoginRefused):
            scram_login(store, "SCRAM-SHA-256", user, password)


def test_a_token_without_the_extension_is_one_where_no_user_has_its_name(
    store: CredentialStore, image: Image
) -> None:
    """librdkafka cannot send it."""
    password = base64.b64encode(Tokens("key", Image).hmac_of("token")).decode()
    done = scram_login(store, "SCRAM-SHA-256", "token", password)
    assert done.identity is not None
    assert (done.identity.principal, done.identity.by_token) == ("User:owner", True)
    assert done.identity.credential == ("tokens", "token")
    with pytest.raises(LoginRefused):
        scram_login(store, "SCRAM-SHA-256", "token", "wrong")
    image.apply([record("token", "SCRAM-SHA-256", "own-password")], 2)
    with pytest.raises(LoginRefused):
        scram_login(store, "SCRAM-SHA-256", "token", password)
    done = scram_login(store, "SCRAM-SHA-256", "token", "own-password")
    assert done.identity is not None and done.identity.principal == "User:token"


def test_a_token_counts_by_the_clock_of_the_broker_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's clock has said when it was made. One that is behind has it begin in the future, and
    takes it; one that is ahead refuses it early; none takes it longer than its own clock allows."""
    image = Image()
    made, minute = 1_800_000_000_000, 60_000
    token = Token("t", "User:owner", "User:owner", (), made, made + 10 * minute, made + 20 * minute)
    capped = token._replace(token_id="capped", expires_ms=made + 30 * minute)  # noqa: S106
    image.apply([token, capped], 1)
    tokens = Tokens("key", lambda: image)

    def good(token_id: str, minutes: float) -> bool:
        monkeypatch.setattr(time, "time_ns", lambda: int((made + minutes * minute) * 1_000_000))
        return tokens.login(token_id) is not None

    assert [good("t", minutes) for minutes in (-5, 0, 9.9, 10, 10.1, 500)] == [True] * 4 + [False] * 2
    assert [good("capped", minutes) for minutes in (19.9, 20.1)] == [True, False]


def test_a_token_is_found_by_its_hmac_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image()
    tokens = Tokens("key", lambda: image)
    made = [Token(f"t{number}", "User:o", "User:o", (), 0, 10, 20) for number in range(50)]
    image.apply(made, 1)
    tokens.changed(token.token_id for token in made)
    hmacs = {token.token_id: tokens.hmac_of(token.token_id) for token in made}
    assert all(tokens.find(hmacs[token.token_id]) == token for token in made)
    computed = []
    hmac_of = tokens.hmac_of
    monkeypatch.setattr(tokens, "hmac_of", lambda token_id: computed.append(token_id) or hmac_of(token_id))
    image.apply([TokenGone("t7")], 2)
    tokens.changed(["t7"])
    assert tokens.find(hmacs["t7"]) is None and tokens.find(hmacs["t8"]) == made[8]
    assert computed == ["t7"], "a change costs no HMAC of other tokens"
    assert len(tokens._by_hmac) == 49


def test_of_a_long_salt_and_a_long_password_only_so_much_is_taken() -> None:
    """A request may have 100 MB of either. The controller refuses what is left of such a salt."""
    image = Image()
    for salt_bytes, salted_bytes in ((500, 64), (1_000_000, 64), (500, 1_000_000)):
        upsertion = SimpleNamespace(
            name="u",
            mechanism=2,
            iterations=4096,
            salt=b"s" * salt_bytes,
            salted_password=b"p" * salted_bytes,
        )
        record = _upsertion(upsertion)
        assert len(record.salt) <= 2 * MAX_SALTED
        cut = from_salted("SCRAM-SHA-512", b"p" * min(salted_bytes, MAX_SALTED), b"", 4096)
        assert record.stored_key == cut.stored_key.hex()
        kept = alter_scram(image, AlterScram([record])).records
        assert bool(kept) == (salt_bytes <= 500)


def test_an_unknown_user_has_the_same_salt_each_time(store: CredentialStore) -> None:
    def salt(user: str) -> str:
        answer = step(Scram("SCRAM-SHA-512", store).respond(f"n,,n={user},r=x".encode())).response.decode()
        assert answer.endswith(",i=4096") or user == "alice"
        return answer.split(",s=")[1].split(",")[0]

    assert salt("mallory") == salt("mallory") != salt("mallet")
    assert salt("alice") == salt("alice")
    assert len(salt("mallory")) == len(salt("alice"))


def test_a_replayed_proof_is_worth_nothing(store: CredentialStore) -> None:
    client = ClientScram(Sasl("SCRAM-SHA-256", "alice", "secret"), "nonce")
    first = Scram("SCRAM-SHA-256", store)
    proof = client.answer(step(first.respond(client.first)).response)
    assert step(first.respond(proof)).identity is not None
    second = Scram("SCRAM-SHA-256", store)
    second.respond(client.first)
    with pytest.raises(LoginRefused):
        second.respond(proof)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=",
        b"n,,m=x,n=alice,r=y",
        b"\xff\xfe",
        b"n,,n=a\0,r=x y",
        b"n,,n=" + b"a" * 99999,
    ],
)
def test_first_messages_that_are_wrong(store: CredentialStore, message: bytes) -> None:
    with pytest.raises(LoginRefused):
        Scram("SCRAM-SHA-256", store).respond(message)


@pytest.mark.parametrize(
    "final",
    [b"", b"c=biws", b"c=biws,r=x,p=AA==", b"c=eSws,r={r},p=AAAA", b"c=biws,r={r},p=!", b"c=biws,r={r},p="],
)
def test_final_messages_that_are_wrong(store: CredentialStore, final: bytes) -> None:
    server = Scram("SCRAM-SHA-256", store)
    nonce = step(server.respond(b"n,,n=alice,r=x")).response.decode()[2:].split(",")[0]
    with pytest.raises(LoginRefused):
        server.respond(final.replace(b"{r}", nonce.encode()))


# ---------------------------------------------------------------------- PLAIN


def test_plain(store: CredentialStore) -> None:
    def log_in(message: str) -> str:
        identity = step(Plain({"bob": "hunter2"}, store).respond(message.encode())).identity
        assert identity is not None
        return identity.principal

    assert log_in("\0bob\0hunter2") == "User:bob"
    assert log_in("bob\0bob\0hunter2") == "User:bob"
    assert log_in("\0alice\0secret") == "User:alice"  # by the SCRAM credentials
    assert log_in("\0alice\0secret") == "User:alice"  # and again, remembered
    assert log_in("\0KEY\0key-secret") == "User:sa-1"
    for wrong in (
        "\0bob\0Hunter2",
        "\0alice\0x",
        "\0nobody\0x",
        "\0KEY\0x",
        "\0OLD\0key-secret",
        "\0bob\0" + "x" * 9999,
    ):
        with pytest.raises(LoginRefused, match="Invalid username or password"):
            log_in(wrong)
    for wrong in ("", "bob", "\0bob", "\0bob\0", "\0\0x", "eve\0bob\0hunter2", "\0bob\0hunter2\0"):
        with pytest.raises(LoginRefused):
            log_in(wrong)


def test_a_wrong_password_takes_the_same_work_whoever_it_is(
    store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def counted(mechanism: str, *arguments: Any) -> Any:
        hashed.append(mechanism)
        return make_credential(mechanism, *arguments)

    monkeypatch.setattr(credentials, "make_credential", counted)
    for user in ("bob", "alice", "odd,na=me", "nobody", "KEY"):
        hashed.clear()
        with pytest.raises(LoginRefused):
            step(Plain({"bob": "hunter2"}, store).respond(f"\0{user}\0wrong".encode()))
        assert hashed == ["SCRAM-SHA-512", "SCRAM-SHA-256"], user


def test_a_changed_password_is_not_remembered(store: CredentialStore, image: Image) -> None:
    assert store.check_password("alice", "secret")
    image.apply([record("alice", "SCRAM-SHA-256", "new"), record("alice", "SCRAM-SHA-512", "new")], 2)
    assert not store.check_password("alice", "secret")
    assert store.check_password("alice", "new")


def test_jaas() -> None:
    text = (
        'org.x.PlainLoginModule required\n username="a" password=\'b\' user_bob="q\\"u\\\\o" user_eve=bare ;'
    )
    assert parse_jaas(text)[0] == "org.x.PlainLoginModule"
    assert plain_users(text) == {"bob": 'q"u\\o', "eve": "bare"}
    for wrong in ("", "x", "M required", 'M required a="b', 'M required a="secret" ! ;', "M sometimes a=b;"):
        with pytest.raises(ValueError, match=r"Expected|semicolon") as error:
            parse_jaas(wrong)
        assert "secret" not in str(error.value)


def first_answer(store: CredentialStore, user: str, extension: str = "") -> tuple[int, int, str]:
    """Size of the salt, iterations, and the salt."""
    outcome = Scram("SCRAM-SHA-512", store).respond(f"n,,n={user},r=nonce{extension}".encode())
    fields = dict(part.split("=", 1) for part in step(outcome).response.decode().split(","))
    return len(base64.b64decode(fields["s"])), int(fields["i"]), fields["s"]


def test_users_that_there_are_not_look_like_those_that_there_are(
    image: Image, store: CredentialStore
) -> None:
    """Tools make salts of different sizes, and users have different numbers of iterations."""
    image.apply([Record("kafka", 2, "ab" * 26, "00" * 64, "00" * 64, 4096)], 2)
    image.apply([Record("long", 2, "ab" * 80, "00" * 64, "00" * 64, 16384)], 3)
    real = {first_answer(store, user)[:2] for user in ("alice", "odd=2Cna=3Dme", "kafka", "long")}
    assert real == {(24, 8192), (24, 4096), (26, 4096), (80, 16384)}
    assert {first_answer(store, f"nobody-{number}")[:2] for number in range(200)} == real
    assert first_answer(store, "nobody") == first_answer(store, "nobody")


def test_without_users_nobody_looks_like_a_user_made_here() -> None:
    empty = Image()
    store = CredentialStore(lambda: empty, lambda: Tokens("", lambda: empty), lambda: "")
    assert first_answer(store, "nobody")[:2] == (24, 4096)


def test_a_token_that_there_is_looks_like_one_that_there_is_not(store: CredentialStore) -> None:
    for token in ("token", "stale", "no-token"):
        outcome = Scram("SCRAM-SHA-512", store).respond(f"n,,n={token},r=nonce,tokenauth=true".encode())
        assert isinstance(outcome, Work)
        assert first_answer(store, token, ",tokenauth=true") == first_answer(store, token, ",tokenauth=true")


# ---------------------------------------------------------------------- OAUTHBEARER

EXPECTED = Expected(("kafka",), "tests")


def test_tokens_that_are_not_to_be_believed(tmp_path: Path) -> None:
    server = TokenServer(tmp_path)
    jwks = Jwks(server.url, 3600)
    now = time.time()
    assert check_token(server.token(), jwks, EXPECTED, now)[0] == "alice"
    assert check_token(server.token(aud=["x", "kafka"]), jwks, EXPECTED, now)[0] == "alice"
    good = server.token()
    head, body, tail = good.split(".")
    none = encoded({"alg": "none"})
    stranger = TokenServer(tmp_path / "..", kid="key-1")
    secret = encoded({"alg": "HS256", "kid": "key-1"})
    for token in (
        f"{none}.{body}.",
        f"{none}.{body}.{tail}",
        f"{secret}.{body}.{tail}",
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{tail[:-4]}AAAA",
        f"{head}.{encoded({'sub': 'root', 'exp': now + 99})}.{tail}",
        server.token(seconds=-31),
        server.token(nbf=now + 99),
        server.token(iat=now + 99),
        server.token(aud="other"),
        server.token(aud=None),
        server.token(iss="other"),
        server.token(user=""),
        server.token(sub=7),
        server.token(exp=None),
        server.token(exp="soon"),
        server.token(exp=True),
        server.token(exp=1e300),
        server.token(header={"kid": "other"}),
        server.token(header={"alg": "RS256"}),
        server.token(header={"alg": "ES384"}),
        server.token(header={"crit": ["b64"]}),
        server.token(header={"jku": stranger.url, "kid": "other"}),
        stranger.token(),
        "",
        "a.b.c",
        "....",
        "x" * 99999,
        f"{encoded(b'[' * 5000)}.{body}.{tail}",
        f"{head}.{encoded(b'[]')}.{tail}",
    ):
        with pytest.raises(InvalidToken):
            check_token(token, jwks, EXPECTED, now)
    # A little of skew is allowed both ways.
    assert check_token(server.token(seconds=-10, iat=now + 10), jwks, EXPECTED, now)


def test_a_new_key_of_the_token_server_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.login.jwks.LEAST_PAUSE", 0.0)
    server = TokenServer(tmp_path)
    jwks = Jwks(server.url, 3600)
    check_token(server.token(), jwks, EXPECTED, time.time())
    newer = TokenServer(tmp_path, "key-2")
    assert check_token(newer.token(), jwks, EXPECTED, time.time())[0] == "alice"
    with pytest.raises(InvalidToken):  # and the old one is gone
        check_token(server.token(), jwks, EXPECTED, time.time())
    server.path.unlink()  # the server is away: what is known counts
    assert check_token(newer.token(), jwks, EXPECTED, time.time())[0] == "alice"


class SlowTokenServer:
    """Keys by HTTP, from a server that answers when it is told to."""

    def __init__(self, keys: Path) -> None:
        self.may_answer = threading.Event()
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                outer.may_answer.wait()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(keys.read_bytes())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def test_a_slow_token_server_holds_up_one_login_and_that_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test would not end if any of these waited for the server, which answers last of all."""
    monkeypatch.setattr("millstream.broker.login.jwks.TIMEOUT", 600.0)
    monkeypatch.setattr("millstream.broker.login.jwks.LEAST_PAUSE", 0.0)
    monkeypatch.setattr("millstream.broker.login.jwks.WAIT", 0.01)
    issuer = TokenServer(tmp_path)
    server = SlowTokenServer(issuer.path)
    try:
        jwks = Jwks(server.url, 3600)
        for _ in range(5):
            with pytest.raises(InvalidToken, match="has not answered"):
                check_token(issuer.token(), jwks, EXPECTED, time.time())
        wait_until(lambda: server.asked == 1)  # one reading at a time
        server.may_answer.set()
        wait_until(lambda: bool(jwks._keys))
        check_token(issuer.token(), jwks, EXPECTED, time.time())

        # While another key is looked for, and while they are old, the known ones count.
        server.may_answer.clear()
        with pytest.raises(InvalidToken):
            check_token(issuer.token(header={"kid": "other"}), jwks, EXPECTED, time.time())
        check_token(issuer.token(), jwks, EXPECTED, time.time())
        jwks.refresh = 0.0
        check_token(issuer.token(), jwks, EXPECTED, time.time())
    finally:
        server.close()


def test_only_one_login_waits_for_keys() -> None:
    jwks = Jwks("http://127.0.0.1:1/", 3600)
    assert jwks._waiter.acquire(blocking=False)  # somebody waits
    jwks._wait(threading.Event())  # never set: this returns all the same


def test_without_a_thread_for_the_keys_now_they_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("millstream.broker.login.jwks.LEAST_PAUSE", 0.0)
    jwks = Jwks("http://127.0.0.1:1/", 3600)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", none_left)
        with pytest.raises(InvalidToken):
            jwks._key("key-1")
    read: list[threading.Event] = []
    monkeypatch.setattr(jwks, "_read", read.append)
    assert jwks._read_soon() is not None
    wait_until(lambda: read)


def test_keys_that_come_byte_by_byte_are_given_up() -> None:
    endless = SimpleNamespace(read1=lambda size: b" ")
    with pytest.raises(TimeoutError):
        _content(endless, time.monotonic() - 1)
    with pytest.raises(ValueError, match="longer"):
        _content(SimpleNamespace(read1=lambda size: b" " * size), time.monotonic() + 600)


def test_a_refused_token_is_answered_before_it_is_closed(tmp_path: Path) -> None:
    server = TokenServer(tmp_path)
    login = OAuthBearer(Jwks(server.url, 3600), EXPECTED)
    first = step(login.respond(f"n,,\x01auth=Bearer {server.token(aud='x')}\x01\x01".encode()))
    assert first.identity is None and json.loads(first.response) == {"status": "invalid_token"}
    with pytest.raises(LoginRefused):
        login.respond(b"\x01")


def test_unsigned_tokens_where_they_are_named() -> None:
    body = encoded({"sub": "dev", "exp": time.time() + 60})
    first = f"n,a=dev,\x01auth=Bearer {encoded({'alg': 'none'})}.{body}.\x01x=y\x01\x01"
    done = step(OAuthBearer(Unsecured(), Expected()).respond(first.encode()))
    assert done.identity is not None and done.identity.principal == "User:dev"
    with pytest.raises(LoginRefused):
        step(OAuthBearer(Unsecured(), Expected()).respond(first.replace("a=dev", "a=root").encode()))


@pytest.mark.parametrize(
    "first", [b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=\x01\x01", b"\x01"]
)
def test_first_messages_of_oauth_that_are_wrong(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        OAuthBearer(Unsecured(), Expected()).respond(first)


@given(st.binary(max_size=300), st.sampled_from(["PLAIN", "SCRAM", "OAUTH"]))
def test_no_bytes_raise_anything_else(message: bytes, kind: str) -> None:
    image = Image()
    store = CredentialStore(lambda: image, lambda: Tokens("", lambda: image), lambda: "")
    made: dict[str, Any] = {
        "PLAIN": Plain({}, store),
        "SCRAM": Scram("SCRAM-SHA-256", store),
        "OAUTH": OAuthBearer(Unsecured(), Expected()),
    }
    try:
        outcome = made[kind].respond(message)
        assert kind == "PLAIN" or step(outcome) is not None
    except LoginRefused:
        pass


def unsigned(**claims: Any) -> bytes:
    body = encoded({"sub": "dev", "exp": time.time() + 60, **claims})
    return f"n,,\x01auth=Bearer {encoded({'alg': 'none'})}.{body}.\x01\x01".encode()


@pytest.mark.parametrize("scope", ["read login", ["login"]])
def test_unsigned_tokens_with_the_scope_that_the_jaas_text_asks_for(scope: object) -> None:
    expected = Expected.unsecured({"unsecuredValidatorRequiredScope": "login"})
    done = step(OAuthBearer(Unsecured(), expected).respond(unsigned(scope=scope)))
    assert done.identity is not None and done.identity.principal == "User:dev"


@pytest.mark.parametrize("claims", [{}, {"scope": "log"}, {"scope": ["read"]}, {"scope": 5}])
def test_unsigned_tokens_without_that_scope(claims: dict[str, object]) -> None:
    expected = Expected.unsecured({"unsecuredValidatorRequiredScope": "login write"})
    login = OAuthBearer(Unsecured(), expected)
    answer = step(login.respond(unsigned(**claims)))
    assert answer.identity is None
    # Apache Kafka's answer, with the list as Java prints it.
    assert json.loads(answer.response) == {"status": "insufficient_scope", "scope": "[login, write]"}
    with pytest.raises(LoginRefused, match="insufficient_scope"):
        login.respond(b"\x01")


def test_the_other_options_of_the_unsecured_validator() -> None:
    prefix = "unsecuredValidator"
    expected = Expected.unsecured(
        {
            f"{prefix}PrincipalClaimName": "mail",
            f"{prefix}ScopeClaimName": "scp",
            f"{prefix}RequiredScope": "a",
        }
    )
    done = step(OAuthBearer(Unsecured(), expected).respond(unsigned(mail="ann@x", scp=["a"])))
    assert done.identity is not None and done.identity.principal == "User:ann@x"
    late = unsigned(exp=time.time() - 100)
    # Without the option there is no grace, as in Kafka.
    for options, believed in ({}, False), ({f"{prefix}AllowableClockSkewMs": "600000"}, True):
        answer = step(OAuthBearer(Unsecured(), Expected.unsecured(options)).respond(late))
        assert (answer.identity is not None) is believed
    with pytest.raises(ValueError, match="AllowableClockSkewMs"):
        Expected.unsecured({f"{prefix}AllowableClockSkewMs": "-1"})
