"""What the workflow of the images pushes, by its own lines over a docker command that writes down what it is asked."""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FAKE = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
"""


class Images(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log, docker = Path(folder.name) / "calls", Path(folder.name) / "docker"
        docker.write_text(FAKE.format(python=sys.executable, log=str(self.log)))
        docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
        self.path = f"{folder.name}:{os.environ['PATH']}"
        self.workflow = yaml.safe_load((ROOT / ".github/workflows/images.yml").read_text())

    def run_step(self, job, step, **given):
        script = next(each["run"] for each in self.workflow["jobs"][job]["steps"] if each["name"] == step)
        named = {"GITHUB_REF_NAME": "v1.2.3", "GITHUB_ACTOR": "a", "GH_TOKEN": "t", "IMAGE": "ghcr.io/Owner/Tally"}
        environment = {**self.workflow["env"], **named, **given, "PATH": self.path}
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True, capture_output=True)

    def test_what_is_pushed_is_what_was_made_and_what_tasks_ask_for(self):
        for arch in ("amd64", "arm64"):
            self.run_step("image", "Push", ARCH=arch)
        self.run_step("together", "Name both")
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        services = re.search(r"^SERVICES=\((.*)\)$", (ROOT / "infra/images").read_text(), re.MULTILINE).group(1).split()
        made = {f"tally/{service}:{arch}" for service in services for arch in ("amd64", "arm64")}
        tagged = {call[2]: call[1] for call in calls if call[0] == "tag"}
        self.assertEqual(set(tagged.values()), made)
        pushed = [call[1] for call in calls if call[0] == "push"]
        self.assertEqual(sorted(pushed), sorted(tagged))
        both = {call[4]: call[5:] for call in calls if call[:4] == ["buildx", "imagetools", "create", "--tag"]}
        self.assertEqual(sorted(part for parts in both.values() for part in parts), sorted(pushed))
        asked = {f"ghcr.io/owner/tally:1.2.3-{service}" for service in services}
        self.assertEqual(set(both), asked)
        for file in sorted((ROOT / "infra").glob("*.yaml")):
            for suffix in re.findall(r"^ +Image: !Sub \"\$\{Image\}-(.*)\"$", file.read_text(), re.MULTILINE):
                self.assertIn(f"ghcr.io/owner/tally:1.2.3-{suffix}", asked)
        for image, parts in both.items():
            self.assertEqual({tagged[part].partition(":")[0] for part in parts}, {f"tally/{image.rpartition('1.2.3-')[2]}"})


if __name__ == "__main__":
    unittest.main()
