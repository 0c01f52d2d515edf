"""Which names stand for secrets: of headers, of query, form and JSON members, and of environment variables.

It decides by names only and must never look at a value.
"""

from __future__ import annotations

HEADERS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-xsrf-token",
    "x-amz-security-token",
    "x-goog-api-key",
    "x-vault-token",
    "x-gitlab-token",
    "private-token",
    "x-hub-signature",
    "x-hub-signature-256",
    "openai-api-key",
    "ocp-apim-subscription-key",
)
"""Headers whose whole value is a secret."""

_MEMBERS = frozenset(
    (
        "access_key",
        "access_token",
        "api_key",
        "apikey",
        "api_token",
        "app_secret",
        "auth",
        "auth_token",
        "authtoken",
        "client_secret",
        "credential",
        "credentials",
        "cookies",
        "csrf_token",
        "encryption_key",
        "id_token",
        "jwt",
        "otp",
        "passcode",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "private_key",
        "pwd",
        "refresh_token",
        "sas_token",
        "secret",
        "secret_access_key",
        "secret_key",
        "secrets",
        "session_id",
        "session_key",
        "session_token",
        "sessionid",
        "shared_secret",
        "signing_key",
        "token",
        "webhook_secret",
        "x_amz_credential",
        "x_amz_security_token",
        "x_amz_signature",
        "x_goog_credential",
        "x_goog_signature",
        "xsrf_token",
    )
)
_ENDINGS = (
    "_access_key",
    "_api_key",
    "_apikey",
    "_auth_token",
    "_credentials",
    "_passphrase",
    "_passwd",
    "_password",
    "_private_key",
    "_secret",
    "_secret_key",
    "_signing_key",
    "_token",
)
# Tokens in the sense of pages, texts and models: nothing secret, and agents and replays need them.
_HARMLESS = frozenset(
    (
        "cancellation_token",
        "continuation_token",
        "continue_token",
        "cursor_token",
        "eos_token",
        "bos_token",
        "max_token",
        "next_page_token",
        "next_token",
        "nextpage_token",
        "page_token",
        "pad_token",
        "pagination_token",
        "skip_token",
        "stop_token",
        "sync_token",
    )
)
QUERY_ONLY = frozenset(("key", "sig", "signature", "code"))
"""Members that are secrets in a URL (`?key=`) but common words elsewhere."""

STEMS = (
    "auth",
    "token",
    "key",
    "pass",
    "pwd",
    "secret",
    "cookie",
    "credential",
    "session",
    "jwt",
    "otp",
    "signature",
    "sig=",
    "code=",
    "-u ",
    '-u"',
    "-user",
)
"""Every secret name, lower-cased and with `=` where it is one in URLs only, and every flag before a user and a password
holds one of these: a text without any of them needs no closer look."""

_HEADERS_AS_MEMBERS = frozenset(name.replace("-", "_") for name in HEADERS)
_cache: dict[str, bool] = {}


def is_secret_member(name: str) -> bool:
    """Say whether a header, form or JSON member of this name holds a secret, in whatever case style it is written."""
    found = _cache.get(name)
    if found is None:
        if len(_cache) > 4096 or len(name) > 200:
            _cache.clear()
        spelled = _snake(name)
        found = _cache[name] = spelled not in _HARMLESS and (
            spelled in _MEMBERS or spelled in _HEADERS_AS_MEMBERS or spelled.endswith(_ENDINGS)
        )
    return found


def _snake(name: str) -> str:
    """Return `apiKey`, `API-Key`, `api.key` as `api_key`."""
    out = []
    before = ""
    for char in name.strip().strip("-"):
        if char.isupper() and (before.islower() or before.isdigit()):
            out.append("_")
        out.append("_" if char in "-. " else char.lower())
        before = char
    return "".join(out)


_WORDS = frozenset(
    (
        "AUTH",
        "BEARER",
        "COOKIE",
        "CREDENTIAL",
        "CREDENTIALS",
        "JWT",
        "PASS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PAT",
        "PWD",
        "SECRET",
        "SECRETS",
        "TOKEN",
    )
)
_GLUED = ("APIKEY", "AUTHTOKEN", "PASSWD", "PASSWORD", "SECRET", "TOKEN")
_KEY_KINDS = frozenset(
    (
        "ACCESS",
        "API",
        "APP",
        "AUTH",
        "DEPLOY",
        "ENCRYPTION",
        "LICENSE",
        "MASTER",
        "PRIVATE",
        "SECRET",
        "SERVICE",
        "SHARED",
        "SIGNING",
    )
)
_NO_VALUE = frozenset(
    (
        "COUNT",
        "DIR",
        "ENABLED",
        "FILE",
        "HELPER",
        "LIMIT",
        "METHOD",
        "NAME",
        "PATH",
        "SOCK",
        "TIMEOUT",
        "TTL",
        "TYPE",
    )
)


def is_secret_variable(name: str) -> bool:
    """Say whether an environment variable of this name holds a secret (`GITHUB_TOKEN`, `PGPASSWORD`, not
    `SSH_AUTH_SOCK`, not `PWD`)."""
    words = [word for word in name.upper().replace("-", "_").split("_") if word]
    if not words or words in (["PWD"], ["OLDPWD"]) or words[-1] in _NO_VALUE or words[0] in ("MAX", "MIN", "NUM"):
        return False
    if not _WORDS.isdisjoint(words) or any(word.endswith(_GLUED) for word in words):
        return True
    keys = [at for at, word in enumerate(words) if word == "KEY"]
    return any(at == len(words) - 1 or (at > 0 and words[at - 1] in _KEY_KINDS) for at in keys)
