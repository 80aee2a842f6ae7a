"""Secrets never leave; what only looks like one stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.logs.masking import clean, mask

# Put together here, so that no scanner takes this file for a leak.
SECRETS = [
    ("Authorization: Bearer ", "abcdefghijklmnop1234567890", ""),
    ("OPENAI_API_KEY=", "sk-" + "proj-abcdefghijklmnopqrstuvwxyz", ""),
    ("key is ", "sk-" + "ant-api03-abcdefghij_klmnopqrst", " now"),
    ("HF: ", "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEF", ""),
    ("push with ", "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789", ""),
    ("aws ", "AKIA" + "IOSFODNN7EXAMPLE", " ok"),
    ("postgres://alice:", "hunter2secret", "@db.example/train"),
    ('{"password": ', '"correct horse battery"', "}"),
    ("db_password: ", "hunter2hunter2", ""),
    ("GET /v1?api_key=", "abcdef123456", "&x=1"),
    ("https://hooks.slack.com/services/", "T0000/B0000/XXXXXXXXXXXXXXXX", ""),
    ("slack ", "xoxb-" + "123456789012-abcdefghijkl", ""),
    ("jwt ", "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", ""),
    ("Storage AccountKey=", "abcdEFGH1234" * 7 + "==", ";EndpointSuffix=core"),
    ("Cookie: session=", "abcdef0123456789abcdef", "; path=/"),
    ("wandb login ", "0123456789abcdef" * 2 + "01234567", " ok"),
    ("mongodb+srv://alice:", "p@ssw0rdlong", "@host/db"),
    ("train.py --password ", "hunter2hunter2", " --epochs 3"),
    ("train.py --api-key ", "abcdef1234567890", " --epochs 3"),
    ("curl -u alice:", "hunter2secret", " https://example.com"),
    ("grok ", "xai" + "-" + "a1B2" * 10, ""),
    ("AZURE_OPENAI_KEY=", "abcdef0123456789" * 2, " next"),
    ("google ", "ya29" + ".a0AfH6SMBabcdefghijklmnop", ""),
    ("mail ", "SG" + ".abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789abcdefghi", ""),
    ("vpn ", "tskey" + "-auth-kabcdef-abcdefghijklmnop", ""),
    ("vault ", "hvs" + ".CAESIabcdefghijklmnopqrstuvwxyz", ""),
    ("bricks ", "dapi" + "0123456789abcdef" * 2, ""),
    ("", "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----", ""),
]

HARMLESS = [
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "run id 550e8400-e29b-41d4-a716-446655440000",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "tokens: 4096, max_tokens=8192, tokens_per_second: 1234.5",
    "num_key_value_heads: 8",
    "key: value, token: null",
    "loading tokenizer from /models/llama/tokenizer.json",
    "https://example.com/docs?page=2",
    "git checkout -u origin main",
    "user 4242:1000 owns /data",
    "--max-tokens 8192 --tokenizer /models/llama",
    "wandb: run 3kq9x2ab finished",
    "image sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
]


@pytest.mark.parametrize(("before", "secret", "after"), SECRETS)
def test_a_secret_is_masked_and_its_surroundings_stay(before: str, secret: str, after: str) -> None:
    masked = mask(before + secret + after)

    assert secret.strip('"') not in masked
    assert masked.startswith(before.rstrip("= :")[:4])
    assert masked.endswith(after)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


@given(st.text(max_size=300))
def test_cleaned_text_is_safe_to_show(text: str) -> None:
    shown = clean(text, 100)

    assert "\x1b" not in shown
    assert len(shown.encode()) <= 100
    assert not any(ord(char) < 32 and char != "\n" for char in shown)


def test_escape_sequences_leave_no_trace() -> None:
    assert clean("\x1b[31mred\x1b[0m and \x1b]8;;http://x\x07link\x1b]8;;\x07") == "red and link"
