#!/usr/bin/env python3
"""Stands in for spark-submit: records its arguments, and ends as $STUB/<station>.json sets. Each call reads that file.

{"exit": 0, "result": {...}, "output": "..."}; without the file, exit 0 and {"ok": true}.
"""

import json
import os
import sys
from pathlib import Path

PLACE = Path(os.environ["STUB"])


def main() -> int:
    script = next(i for i, argument in enumerate(sys.argv) if argument.endswith(".py") and i > 0)
    job, argv = sys.argv[script + 1], sys.argv[script + 2 :]
    arguments = [argument_of(a) for a in argv]
    with (PLACE / "calls.jsonl").open("a") as calls:
        call = {
            "job": job,
            "arguments": arguments,
            "argv": argv,
            "submit": sys.argv[1:script],
            "path": os.environ["PATH"],
        }
        calls.write(json.dumps(call | private_file(arguments)) + "\n")
    answer_file = PLACE / f"{job}.json"
    answer = json.loads(answer_file.read_text()) if answer_file.exists() else {"result": {"ok": True}}
    print(answer.get("output", ""))
    if "result" in answer:
        result = arguments[arguments.index("--result") + 1]
        report = answer["result"]
        if "://" in result:
            report = {"format": 1, "exit_code": answer.get("exit", 0), "result": report}
        place_of(result).parent.mkdir(parents=True, exist_ok=True)
        place_of(result).write_text(json.dumps(report))
    return answer.get("exit", 0)


def argument_of(text: str) -> str:
    """Return an argument as argparse (@FILE) and a job (@ADDRESS of a numbered document) read it."""
    if not text.startswith("@"):
        return text
    read = place_of(text[1:]).read_text()
    return str(json.loads(read)["argument"]) if "://" in text else read


def place_of(text: str) -> Path:
    """Return the path of a file, or of an object in a store that is a folder."""
    return Path(text.removeprefix("file://"))


def private_file(arguments: list[str]) -> dict[str, object]:
    """Return content and mode of the file with a job's secrets, while the job can read it."""
    if "--client-settings" not in arguments:
        return {}
    file = Path(arguments[arguments.index("--client-settings") + 1])
    return {"client": json.loads(file.read_text()), "mode": oct(file.stat().st_mode & 0o777)}


if __name__ == "__main__":
    sys.exit(main())
