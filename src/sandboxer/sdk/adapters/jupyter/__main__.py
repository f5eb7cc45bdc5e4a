"""Adds the kernel "Python (sandboxer)" to those that Jupyter offers."""

import json
import sys
import tempfile
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

SPEC = {
    "argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Python (sandboxer)",
    "language": "python",
    "metadata": {"kernel_provisioner": {"provisioner_name": "sandboxer", "config": {}}},
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(SPEC, indent=1))
        where = KernelSpecManager().install_kernel_spec(folder, "sandboxer-python3", prefix=sys.prefix)
    print(f"Jupyter offers Python (sandboxer) now: {where}")


main()
