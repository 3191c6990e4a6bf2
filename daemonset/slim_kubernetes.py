"""Leave out of an image what nothing in it imports: of the kubernetes package the scheduler uses configuration and
credentials alone, and the rest (models and calls of every API, twice) is 60 MB.

    python slim_kubernetes.py        in the environment that the image gets

The image's build runs it, and ends with an error if a new version of the package needs what is gone.
See docs/design/installation.md."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

# Modules instead of the generated lists of everything.
MODULES = {
    "__init__.py": "",
    "client/__init__.py": (
        "from kubernetes.client.configuration import Configuration\n"
        "from kubernetes.client.exceptions import ApiException\n"
        "from kubernetes.client.api_client import ApiClient\n"
    ),
    "client/models/__init__.py": "",
    "utils/__init__.py": "",
}
LEFT_OUT = ("aio", "client/api", "client/models", "dynamic", "informer", "leaderelection", "stream")
NEEDED = (
    "from kubernetes.client import Configuration\n"
    "from kubernetes.config import ConfigException, list_kube_config_contexts\n"
    "from kubernetes.config import load_incluster_config, load_kube_config\n"
)


def main() -> None:
    found = importlib.util.find_spec("kubernetes")
    if found is None or not found.submodule_search_locations:
        sys.exit("slim_kubernetes: the kubernetes package is not installed")
    package = Path(found.submodule_search_locations[0])
    for folder in LEFT_OUT:
        if not (package / folder).is_dir():
            sys.exit(f"slim_kubernetes: {package / folder} is missing; the package has changed")
        shutil.rmtree(package / folder)
    for name, text in MODULES.items():
        file = package / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    subprocess.run([sys.executable, "-W", "error", "-c", NEEDED], check=True)


if __name__ == "__main__":
    main()
