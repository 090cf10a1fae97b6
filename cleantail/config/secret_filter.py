"""Recognizes secrets in YAML, by the key or by the value. Pure.

Settings of catalog and Spark have free names. They appear on command lines, which every user of the machine may read,
and in the YAML of a repository.

1. A key is refused if its name marks the value as a secret: a password, a token, a key.
2. A value is refused if it has the form of a secret.
3. Switches and places of secrets are allowed: true and false, the path of a file, the name of a class.

`VARIABLE` matches names of environment variables that YAML may give for a catalog's secrets.
"""

from __future__ import annotations

import re

VARIABLE = "CLEANTAIL_(CATALOG|S3|STORE)_[A-Z0-9_]{1,100}"
VARIABLE_ALLOWED = (
    "the name of an environment variable that begins with CLEANTAIL_CATALOG_, CLEANTAIL_S3_ or CLEANTAIL_STORE_"
)


SECRET_FACT = "secrets are not allowed in YAML"
SECRET_HINT = "set an environment variable (CLEANTAIL_…), or write the id of an Airflow connection"

_SECRET_ANYWHERE = re.compile(
    r"passw|passphrase|secret|token|credential(?!s?[._-]?provider)|jaas|conn(ection)?[._-]?str(ing)?\b"
    r"|(access|private|api|account|shared|sign(?:ing|er)|encryption|decryption|sse|subscription|functions?|master|hmac|ssh)"
    r"[._-]?key(?![._-]?(store|size|length))",
    re.IGNORECASE,
)
"""Matches parts of names that mark a secret at any place."""
# fmt: off
_SECRET_WORDS = frozenset({
    "apikey", "auth", "authorization", "bearer", "cookie", "credentials", "creds", "dsn", "jwt", "keypass", "pass",
    "passcode", "pat", "private", "pw", "pwd", "sas", "sig", "signature", "storepass", "userpass", "userpwd",
})
"""Words that mark a secret unless the name continues with an attribute, as auth.type and sas.provider do."""
_ATTRIBUTE_WORDS = frozenset({
    "algorithm", "class", "enabled", "endpoint", "engine", "expiration", "file", "id", "impl", "interval", "issuer",
    "location", "mechanism", "method", "mode", "ms", "name", "path", "port", "principal", "protocol", "provider",
    "realm", "region", "scope", "server", "source", "timeout", "ttl", "type", "uri", "url", "user", "username",
    "version",
})
_LOGIN_METHODS = frozenset({
    "basic", "custom", "digest", "entra", "entraid", "google", "kerberos", "key", "none", "ntlm", "oauth", "oauth2",
    "sas", "sharedkey", "sigv4", "simple", "ssl", "tls",
})
# fmt: on
"""Values that name a login method, for example of fs.azure.account.auth.type.ACCOUNT."""
_PASSING = re.compile(r"pass[_-]?through", re.IGNORECASE)
"""Matches a "pass" that is not a password."""
_KEPT = re.compile(r"arn:[a-z-]+:(kms|secretsmanager):[\w:/+=,.@-]+")
_REFERENCE = re.compile(r"spark\.kubernetes\.(driver|executor)\.secretKeyRef\.[A-Z][A-Z0-9_]*")
"""Matches Spark's keys for references to secrets of Kubernetes. Their values are not secret."""
_REFERENCED = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?:[A-Za-z0-9._-]{1,253}")
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*){2,}")
_SECRET_VALUE = re.compile(
    r"jdbc:oracle:\w{1,8}:[^\s/@:]{1,128}/[^\s@]{1,128}@"
    r"|(?:password|passphrase|passcode|passwd|pwd|secret|token|accountkey|accesskey|access_key|apikey|api_key|api-key"
    r"|sharedaccesssignature|credential)\s?="
    r"|sharedaccesssignature |(?:^|[?&;,\s])(?:sig|signature)=|x-(?:amz|goog)-signature="
    rf"|[?&](?:sas|auth|key)=(?!(?:{'|'.join(sorted(_LOGIN_METHODS))})(?:[&#\s]|$))[^&#\s]"
    # `password: who and when` is prose; a value with a digit, at the end of the line or before another name is not
    r"|(?:password|passphrase|passcode|passwd|pwd)[\"']?\s?:(?!:)\s?"
    r"(?:\S{0,64}\d|[^\s,;}]{1,128}(?:[,;}\n]|\s*$|\s[\w.-]{1,64}\s?[:=]))"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY"
    # OpenAI, Anthropic, Google, Hugging Face, DigitalOcean, SendGrid, Databricks, Vault, Stripe, PyPI, Docker,
    # Atlassian, GitLab, Linear, Shopify, Slack, Doppler, Grafana, Groq
    r"|(?-i:\bsk-(?=[\w-]{0,300}\d)(?=[\w-]{0,300}[A-Z])[\w-]{32}|\bya29\.[\w-]{20}|\b1//0[\w-]{24}|\bGOCSPX-[\w-]{20}|\bhf_[A-Za-z0-9]{20})"
    r"|(?-i:\bdo[opr]_v1_[0-9a-f]{20}|\bSG\.[\w-]{16,32}\.[\w-]{16}|\bdapi[0-9a-f]{32}|\bhv[sbr]\.[\w-]{20}|\b[sr]k_test_[0-9A-Za-z]{16})"
    r"|(?-i:\bwhsec_[0-9A-Za-z]{20}|\bpypi-AgE[\w-]{20}|\bdckr_pat_[\w-]{20}|\bATATT3[\w-]{20}|\bgl(?:dt|rt|rtr|cbt|ptt|ft|soat|oas|imt|agent)-[\w-]{20}|\blin_api_\w{20})"
    r"|(?-i:\bshp(?:at|ca|pa|ss)_[0-9a-f]{20}|\bxapp-\d-[0-9A-Za-z-]{10}|\bdp\.[a-z]{2,5}\.[\w.-]{20}|\bglsa_\w{20}|\bgsk_[0-9A-Za-z]{20})"
    # xAI, NVIDIA, Notion, Figma, Replicate, Perplexity, Sentry, Tailscale, New Relic, Pulumi, 1Password
    r"|(?-i:\bxai-[0-9A-Za-z]{32}|\bnvapi-[\w-]{32}|\bntn_[0-9A-Za-z]{32}|\bfigd_[\w-]{32}|\br8_[0-9A-Za-z]{32}|\bpplx-[0-9A-Za-z]{32})"
    r"|(?-i:\bsntrys_eyJ[\w+/=-]{16}|\btskey-(?:auth|api|client)-[\w-]{16}|\bNRAK-[0-9A-Z]{20}|\bpul-[0-9a-f]{32}|\bops_eyJ[\w-]{16})"
    # Aiven, Confluent Cloud, OpenRouter and DeepSeek, Bedrock, Grafana Cloud, Supabase, Postman, LangSmith
    r"|(?-i:\bAVNS_[\w-]{16}|\bcflt[\w/+]{20}|\bsk-(?:or-v1-)?[0-9a-f]{32}|\bABSK[\w+/=]{20}|\bbedrock-api-key-\w{16})"
    r"|(?-i:\bglc_eyJ[\w+/=]{16}|\bsbp_[0-9a-f]{20}|\bsb_secret_\w{16}|\bPMAK-[0-9a-f]{20}|\blsv2_[ps]t_[0-9a-f]{20})"
    # PlanetScale, Brevo, Dynatrace, Bitbucket, Atlassian, CircleCI, Heroku, Terraform Cloud, Azure AD, JFrog
    r"|(?-i:\bpscale_(?:pw|tkn)_\w{16}|\bxkeysib-[0-9a-f]{20}|\bdt0c01\.[\w.]{20}|\bATBB[\w=]{20}|\bATCTT3[\w=-]{20})"
    r"|(?-i:\bCCIPAT_\w{16}|\bHRKU-[\w-]{20}|\.atlasv1\.[\w-]{20}|\b[\w.~-]{3}[78]Q~[\w.~-]{30}|\bAKCp[0-9A-Za-z]{20})"
    r"|(?-i:\bAGE-SECRET-KEY-1|\bAccountKey=)"
    r"|\bgh[pousr]_[A-Za-z0-9]{20}|\bgithub_pat_\w{20}|\bglpat-[\w-]{16}|\b[sr]k_live_[0-9A-Za-z]{16}"
    r"|\bnpm_[0-9A-Za-z]{36}|(?-i:\bAIza[\w-]{35}|\bA[KS]IA[0-9A-Z]{16}\b)"
    r"|\bxox[abeprs]-[0-9A-Za-z]|\beyJ[\w-]{8,4096}\.eyJ"
    r"|hooks\.slack\.com/services/T|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com|outlook\.office\.com/webhook",
    re.IGNORECASE,
)
_USER = re.compile(r"://([^/@:]*)([@:])")
_PORT = re.compile(r"\d{1,5}(?=[/?#,]|$)")
_DIGITS_AND_SLASH = re.compile(r"\d{1,5}/[^?#@:]*@")
_PLAIN_SCHEMES = ("http", "https", "docker", "oci")
"""Schemes whose paths may contain an @, as host:8181/lake@main."""
_LOGIN = re.compile(r"(?:authorization:\s*)?(?:bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=,:\"-]+", re.IGNORECASE)
"""Matches the whole value of a header. `Basic customer data` is prose."""


def is_secret(key: str, value: object) -> bool:
    """Return whether the key marks the value as a secret. Booleans are never secrets."""
    if value is None or isinstance(value, bool) or str(value).lower() in ("true", "false"):
        return False
    if _REFERENCE.fullmatch(key) and _REFERENCED.fullmatch(str(value)):
        return False
    name_parts = [part.lower() for part in _PART.findall(_PASSING.sub("", key))]
    if _SECRET_ANYWHERE.search(key):
        return not _is_place_of_secret(name_parts, value)
    if not _SECRET_WORDS.intersection(name_parts):
        return False
    return (
        name_parts[-1] not in _ATTRIBUTE_WORDS
        and str(value).lower() not in _LOGIN_METHODS
        and not _is_place_of_secret(name_parts, value)
    )


def _is_place_of_secret(name_parts: list[str], value: object) -> bool:
    """Return whether the value only describes the secret: its lifetime, its file, the service that stores it, or the
    class that provides it."""
    if name_parts[-1:] == ["ms"] and str(value).isdecimal():
        return True
    if not isinstance(value, str) or not name_parts:
        return False
    of_file = name_parts[-1] in ("file", "path", "location") and re.match(r"(file:)?/[^\s=?&]*$", value)
    return bool(of_file or _KEPT.fullmatch(value) or ("provider" in name_parts and _CLASS.fullmatch(value)))


def is_secret_value(value: str) -> bool:
    """Return whether a text has the form of a secret: an address with a login, password=…, Bearer …."""
    return bool(_SECRET_VALUE.search(value) or _LOGIN.fullmatch(value.strip()) or any(map(_has_login, value.split())))


def _has_login(word: str) -> bool:
    """Return whether a text without blanks has an address with a password or, for the web, with a user.

    Reads each character once, because the next address starts at the end of a user's name at the earliest.
    """
    last_at = word.rfind("@")
    for user in _USER.finditer(word, 0, last_at + 1):
        scheme = word[max(0, user.start() - 6) : user.start()].lower()
        if user[2] == "@":
            is_login = bool(user[1]) and scheme.endswith(("http", "https"))
        elif _PORT.match(word, user.end()):
            is_login = not scheme.endswith(_PLAIN_SCHEMES) and bool(_DIGITS_AND_SLASH.match(word, user.end()))
        else:
            is_login = True  # a password may contain a /, and a port is followed by one
        if is_login:
            return True
    return False
