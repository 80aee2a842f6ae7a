"""Secrets out, control characters out: what a job wrote becomes text that can be stored, shown and sent."""
# ruff: noqa: E501 - a regular expression reads best in one line

from __future__ import annotations

import re

MASK = "***"

# Python's re is fine here: each pattern is ours, anchored on a literal, and free of nested repetition.
_TOKENS = re.compile(
    r"""
    \b(?:
        sk-(?:ant-|proj-|or-v1-|svcacct-)?[A-Za-z0-9_-]{16,}   # OpenAI, Anthropic, OpenRouter
      | (?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}
      | glpat-[A-Za-z0-9_-]{16,}
      | hf_[A-Za-z0-9]{20,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}
      | AIza[A-Za-z0-9_-]{30,}
      | xox[abposr]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}
      | nvapi-[A-Za-z0-9_-]{20,} | gsk_[A-Za-z0-9]{20,} | r8_[A-Za-z0-9]{20,} | pplx-[A-Za-z0-9]{20,}
      | xai-[A-Za-z0-9]{30,}
      | fw_[A-Za-z0-9]{20,} | lin_api_[A-Za-z0-9]{30,} | dapi[a-f0-9]{32}(?:-\d)? | key-[a-f0-9]{32}
      | ya29\.[A-Za-z0-9_-]{16,} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,} | tskey-[a-z]+-[A-Za-z0-9-]{12,}
      | hv[sb]\.[A-Za-z0-9_-]{20,} | tgp_v1_[A-Za-z0-9_-]{20,} | AC[a-f0-9]{32}:[a-f0-9]{32} | rpa_[A-Za-z0-9]{30,}
      | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | dop_v1_[a-f0-9]{40,}
      | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web token
    )
    """,
    re.VERBOSE,
)
_BEARER = re.compile(r"\b(bearer|basic|token)(\s+)(?=[A-Za-z0-9+/_.=~-]{16,})[A-Za-z0-9+/_.=~-]+", re.IGNORECASE)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)([^/\s:@'\"<>]*):([^/\s'\"<>]+)@", re.IGNORECASE)
_OPTION = re.compile(
    r"(?i)((?:^|\s)--?(?:[a-z0-9]+[_-]){0,3}(?:api[_-]?key|password|passwd|passphrase|secret|token)[ =])"
    r"[\"']?[^\s\"',;]{6,}[\"']?"
    r"|((?:^|\s)-u ?[^\s:]{1,64}:)[^\s@]{4,}|(\bwandb login (?:--relogin )?)[A-Za-z0-9]{30,}"
    r"|(\b(?:set-)?cookie: ?[\w.-]+=)[^\s;]{12,}"
)
_HOOKS = re.compile(
    r"(https://(?:hooks\.slack\.com/(?:services|workflows)|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks"
    r"|api\.telegram\.org/bot)/?)[A-Za-z0-9/_:-]{8,}"
)
_NAMED = re.compile(
    r"""(?ix)
    (["']?\b(?:[a-z0-9]+[_.-]){0,4}
      (?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|access[_-]?key|access[_-]?token|auth[_-]?token|refresh[_-]?token
        |client[_-]?secret|account[_-]?key|shared[_-]?access[_-]?(?:key|signature)
        |openai[_-]?key|subscription[_-]?key|password|passwd|passphrase|private[_-]?key|pwd|token|x-api-key|webhook)
     ["']?\s*(?:=|:|=>)\s*)
    (?:"[^"\n]{4,}"|'[^'\n]{4,}'|[^\s,;&"'}\])]{6,})
    """
)
_QUERY = re.compile(
    r"([?&](?:key|token|sig|signature|api_key|apikey|access_token|password|X-Amz-Signature)=)[^&\s\"']+", re.IGNORECASE
)
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_HINT = re.compile(
    r"key|secret|token|passw|pwd|passphrase|webhook|bearer|basic|://|sk-|gh[a-z]_|glpat|hf_|AKIA|ASIA|AIza|xox|xapp|nvapi"
    r"|gsk_|r8_|pplx|npm_|pypi-|dop_|k_live|k_test|eyJ|sig|xai-|fw_|lin_api|dapi|ya29|SG\.|tskey|hv[sb]\.|tgp_|rpa_|AC[a-f0-9]{32}|cookie|wandb login| -u ",
    re.IGNORECASE,
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# A count of tokens is no token, and a boolean or null is no secret.
_HARMLESS = re.compile(r"(?i)^[\"']?(?:\d+(?:\.\d+)?|true|false|none|null|\*+|<[^>]*>|\$\{?\w+\}?)[\"']?$")


def mask(text: str) -> str:
    """`text` with keys, tokens, passwords and credentials in URLs replaced by `***`.

    Hashes, uuids and git commits stay: only known shapes of tokens and values
    named like a secret are masked.
    """
    if not _HINT.search(text):
        return text
    if "PRIVATE KEY" in text:
        text = _PRIVATE.sub("-----PRIVATE KEY " + MASK + "-----", text)
    text = _URL.sub(rf"\1\2:{MASK}@", text)
    text = _HOOKS.sub(rf"\1{MASK}", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _OPTION.sub(lambda found: next(filter(None, found.groups())) + MASK, text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _TOKENS.sub(MASK, text)
    return _NAMED.sub(_named, text)


def _named(found: re.Match[str]) -> str:
    value = found[0][len(found[1]) :]
    return found[0] if _HARMLESS.match(value) else found[1] + MASK


def clean(text: str, limit: int = 4096) -> str:
    """One safe line of job text: no escape sequences, no control or direction characters, bounded, masked.

    Tabs become spaces; line breaks stay as they are, for callers that keep several lines.
    """
    cut = text if len(text) <= limit * 2 else text[: limit * 2]
    cut = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", cut).replace("\r\n", "\n").replace("\t", "    "))
    cut = mask(cut)
    encoded = cut.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return cut
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"
