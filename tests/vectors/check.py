#!/usr/bin/env python3
"""Checks the test vectors against README.md, independently of the Rust code.

    python3 check.py           verify every expected value
    python3 check.py --write   fill in every expected value
"""
import base64
import hashlib
import json
import pathlib
import re
import struct
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
FLOORS = {"canonical": 60, "refused": 60, "fingerprints": 20, "keys": 30, "downstream": 8, "calls": 40}


class Refused(Exception):
    pass


# --- canonical text --------------------------------------------------------------------------


class Decimal:
    """A number by its text: exact, whatever its size."""

    PATTERN = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?")

    def __init__(self, text):
        sign, whole, fraction, exponent = self.PATTERN.fullmatch(text).groups()
        digits = whole + (fraction or "")
        self.n = len(whole) + int(exponent or 0)
        self.n -= len(digits) - len(digits.lstrip("0"))
        self.digits = digits.strip("0")
        self.sign = sign if self.digits else ""
        if self.digits and abs(self.n - 1) > 1_000_000:
            raise Refused("exponent")

    def text(self):
        d, n, k = self.digits, self.n, len(self.digits)
        if not d:
            return "0"
        if k <= n <= 21:
            return self.sign + d + "0" * (n - k)
        if 0 < n <= 21:
            return self.sign + d[:n] + "." + d[n:]
        if -6 < n <= 0:
            return self.sign + "0." + "0" * -n + d
        mark = "e+" if n - 1 >= 0 else "e-"
        return self.sign + d[0] + ("." + d[1:] if k > 1 else "") + mark + str(abs(n - 1))


def members(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise Refused("duplicate name")
    return dict(pairs)


def constant(word):
    raise Refused(word)


def parse(text):
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused(str(error))
    try:
        value = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=constant,
                           object_pairs_hook=members)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Refused(str(error))
    check(value, 0)
    return value


def check(value, depth):
    if isinstance(value, str):
        if any(0xD800 <= ord(char) < 0xE000 for char in value):
            raise Refused("lone surrogate")
    elif isinstance(value, (list, dict)):
        if depth == 128:
            raise Refused("depth")
        if isinstance(value, dict):
            for name in value:
                check(name, depth)
            value = value.values()
        for item in value:
            check(item, depth + 1)


ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quote(text):
    def one(char):
        return ESCAPES.get(char) or ("\\u%04x" % ord(char) if ord(char) < 0x20 else char)
    return '"' + "".join(map(one, text)) + '"'


def canonical(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return value.text()
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(quote(name) + ":" + canonical(value[name]) for name in names) + "}"


# --- digests ---------------------------------------------------------------------------------


def u64(number):
    return struct.pack("<Q", number)


def frame(part):
    return u64(len(part)) + part


def digest(domain, kind, parts):
    text = frame(domain.encode()) + b"\x01" + frame(kind.encode())
    text += b"".join(map(frame, parts)) + u64(len(parts))
    return hashlib.sha256(text).digest()


def args_digest(value):
    return digest("onceledger/arguments", "canonical", [canonical(value).encode()])


ABSENT = object()


def resolve(value, pointer):
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(token, ABSENT)
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", token):
            value = value[int(token)] if int(token) < len(value) else ABSENT
        else:
            return ABSENT
        if value is ABSENT:
            return ABSENT
    return value


def fields(args, pointers, state):
    parts = []
    for pointer in sorted(set(pointers), key=str.encode):
        value = resolve(args, pointer)
        if value is ABSENT and not state:
            raise Refused("identity field missing")
        text = b"" if value is ABSENT else canonical(value).encode()
        mark = [b"\x00" if value is ABSENT else b"\x01"] if state else []
        parts += [pointer.encode(), *mark, text]
    return parts


def fingerprint(args, pointers):
    if not pointers:
        return digest("onceledger/fingerprint", "all", [args_digest(args)])
    return digest("onceledger/fingerprint", "fields", fields(args, pointers, True))


def identity(args, pointers):
    if not pointers:
        return digest("onceledger/identity", "all", [args_digest(args)])
    return digest("onceledger/identity", "fields", fields(args, pointers, False))


# --- one function per file: the expected values of one case ------------------------------------


def octets(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


def of_canonical(case):
    value = parse(case["input"])
    return {"canonical": canonical(value), "args_digest": args_digest(value).hex()}


def of_refused(case):
    given = case["input"]
    try:
        parse(octets(given) if isinstance(given, dict) else given)
    except Refused:
        return {}
    raise SystemExit("refused: %s is not refused" % case["name"])


def of_fingerprints(case):
    if case["rule"] == "unguarded":
        return {"fingerprint": digest("onceledger/fingerprint", "unguarded", []).hex()}
    args = parse(case["args"])
    if case["rule"] == "by_hand":
        return {"fingerprint": fingerprint(args, case["guard"]).hex()}
    covered = case["identity"] + case["guard"] if case["identity"] else []
    return {"fingerprint": fingerprint(args, covered).hex(),
            "identity_digest": identity(args, case["identity"]).hex()}


def of_keys(case):
    scope = [case["scope"].encode(), case["run"].encode()]
    if case["kind"] == "action":
        rest = [case["action"].encode(), *map(octets, case["parts"])]
    elif case["kind"] == "call":
        rest = [case["call_id"].encode(), bytes.fromhex(case["fingerprint"])]
    else:
        rest = [case["tool"].encode(), bytes.fromhex(case["identity_digest"])]
    return {"key": digest("onceledger/key", case["kind"], scope + rest).hex()}


def of_downstream(case):
    value = digest("onceledger/downstream", "effect", [bytes.fromhex(case["key"]), case["label"].encode()])
    number = int.from_bytes(value[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return {"hex": value.hex(), "base64url": base64.urlsafe_b64encode(value).decode().rstrip("="),
            "uuid": str(uuid.UUID(int=number))}


# --- tool calls --------------------------------------------------------------------------------


def call_of(shape, value):
    """The member of a message that is the call: tool, id, arguments, what stands beside them."""
    if shape == "openai_responses":
        return value["name"], value.get("call_id"), value.get("arguments"), None
    if shape == "openai_chat":
        call = value["tool_calls"][0]
        return call["function"]["name"], call.get("id"), call["function"].get("arguments"), None
    if shape == "anthropic":
        return value["name"], value.get("id"), value.get("input"), None
    if shape in ("gemini", "gemini_snake"):
        call = value["functionCall" if shape == "gemini" else "function_call"]
        return call["name"], call.get("id"), call.get("args"), None
    if shape in ("ai_sdk", "ai_sdk_provider"):
        call = value["content"][0] if "content" in value else value
        return call["toolName"], call["toolCallId"], call.get("input"), None
    if shape == "langchain":
        return value["name"], value.get("id"), value.get("args"), None
    return value["params"]["name"], None, value["params"].get("arguments"), value["params"].get("_meta")


PREFIXED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)+/.*", re.S)
KEY_NAMES = ("idempotencyKey", "idempotency-key", "idempotency_key")


def arguments_of(given, beside):
    """The arguments without what is not theirs, and the key that was carried in it."""
    if isinstance(given, str):
        given = parse(given) if given.strip() else None
    given = {} if given is None else given
    inside = given.get("_meta")
    metas = [meta for meta in (beside, inside) if isinstance(meta, dict)]
    keys = {value for meta in metas for name, value in meta.items()
            if PREFIXED.fullmatch(name) and name.split("/", 1)[1] in KEY_NAMES}
    assert len(keys) <= 1
    if isinstance(inside, dict) and any(map(PREFIXED.fullmatch, inside)):
        rest = {name: value for name, value in inside.items() if not PREFIXED.fullmatch(name)}
        given = {name: value for name, value in given.items() if name != "_meta"}
        if rest:
            given["_meta"] = rest
    return given, next(iter(keys), None)


def envelope(shape, tool, call_id, request, error):
    if shape == "openai_responses":
        return {"type": "function_call_output", "call_id": call_id or "", "output": "$TEXT"}
    if shape == "openai_chat":
        return {"role": "tool", "tool_call_id": call_id or "", "content": "$TEXT"}
    if shape == "anthropic":
        part = {"type": "tool_result", "tool_use_id": call_id or "", "content": "$TEXT", "is_error": error}
        return {"role": "user", "content": [part]}
    if shape in ("gemini", "gemini_snake"):
        part = {"name": tool, "response": {"error" if error else "output": "$BODY"}}
        if call_id is not None:
            part["id"] = call_id
        return {"functionResponse" if shape == "gemini" else "function_response": part}
    if shape in ("ai_sdk", "ai_sdk_provider"):
        output = {"type": "error-text", "value": "$TEXT"} if error else {"type": "json", "value": "$BODY"}
        part = {"type": "tool-result", "toolCallId": call_id or "", "toolName": tool, "output": output}
        return {"role": "tool", "content": [part]}
    if shape == "langchain":
        return {"type": "tool", "tool_call_id": call_id or "", "name": tool, "content": "$TEXT",
                "status": "error" if error else "success"}
    result = {"content": [{"type": "text", "text": "$TEXT"}], "structuredContent": "$BODY", "isError": error}
    return {"jsonrpc": "2.0", "id": request, "result": result}


def of_calls(case):
    value = parse(case["call"])
    tool, call_id, given, beside = call_of(case["shape"], value)
    args, carried = arguments_of(given, beside)
    print_of = fingerprint(args, case["identity"] + case["guard"] if case["identity"] else [])
    scope, run = case["scope"].encode(), case["run"].encode()
    if case["rule"] == "call":
        part = canonical([tool, carried or call_id]).encode()
        key = digest("onceledger/key", "call", [scope, run, part, print_of])
    else:
        run = b"" if case["rule"] == "business" else run
        key = digest("onceledger/key", "tool", [scope, run, tool.encode(), identity(args, case["identity"])])
    request = json.loads(case["call"]).get("id") if case["shape"] == "mcp" else None
    return {"tool": tool, "call_id": carried or call_id, "arguments": canonical(args), "fingerprint": print_of.hex(),
            "key": key.hex(), "result": envelope(case["shape"], tool, call_id, request, False),
            "error": envelope(case["shape"], tool, call_id, request, True)}


def main():
    write = sys.argv[1:] == ["--write"]
    wrong = 0
    for stem, floor in FLOORS.items():
        path = HERE / (stem + ".json")
        cases = json.loads(path.read_text(encoding="utf-8"))
        names = [case["name"] for case in cases]
        assert len(set(names)) == len(names), "%s: a name occurs twice" % stem
        assert len(cases) >= floor, "%s: %d cases, fewer than %d" % (stem, len(cases), floor)
        for case in cases:
            for field, value in globals()["of_" + stem](case).items():
                if write:
                    case[field] = value
                elif case.get(field) != value:
                    wrong += 1
                    print("%s: %s: %s should be %s" % (stem, case["name"], field, value))
        if write:
            lines = ",\n".join(json.dumps(case) for case in cases)
            path.write_text("[\n%s\n]\n" % lines, encoding="utf-8")
        print("%s: %d cases" % (stem, len(cases)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
