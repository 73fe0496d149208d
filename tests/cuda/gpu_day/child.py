"""One process of a stage: ``python -m tests.cuda.gpu_day.child``, which `running` starts.

A stage that comes to no end is ended by the interpreter itself, which writes the traceback of each thread first.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.cuda.stand_ins import do_without_test_libraries
from vmflow.errors import DeviceLost

from .findings import Findings, OutOfTime, Task

# Seconds in which a stage that is out of time is to notice that.
GRACE: Final = 15.0


def main() -> int:
    task = Task(**json.loads(sys.argv[1]))
    faulthandler.dump_traceback_later(task.seconds + GRACE, exit=True)
    findings = Findings(task, Path(sys.argv[2]))
    do_without_test_libraries()
    try:
        import_module(f"tests.cuda.gpu_day.{task.stage}").run(findings)
    except DeviceLost as error:
        findings.status = "device lost"
        findings.fail(findings.doing, error)
    except OutOfTime as error:
        findings.status = "out of time"
        findings.fail(findings.doing, error)
    except BaseException as error:
        findings.status = "failed"
        findings.fail(findings.doing, error)
    else:
        findings.status = "failed" if findings.failures else "ok"
    findings.write()
    return 0 if findings.status == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
