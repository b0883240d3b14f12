"""The Prometheus of the drill: what it scrapes, which alerts fire, and what the dashboards' queries return."""

import json
import time
import urllib.parse

from drilling.world import ask, until


class Prometheus:
    """A Prometheus over the shortened rules, with the targets and labels of localstack/observability/prometheus.yml."""

    def __init__(self, world, rules):
        import yaml

        self.url = f"http://127.0.0.1:{world.ports['prometheus']}/api/v1"
        folder = world.folder
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules, sort_keys=False, width=200))
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"service": name}} for name, port in [*world.admin.items(), ("canary", world.canary)]]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "tally", "static_configs": targets}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        world.begin()
        listen = f"--web.listen-address=127.0.0.1:{world.ports['prometheus']}"
        files = [f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'prometheus'}"]
        world.start("prometheus", "prometheus", listen, *files)
        until("Prometheus to scrape all six", lambda: self.value("sum(up)") == 6)

    def ask(self, path, **arguments):
        status, said = ask(f"{self.url}/{path}?{urllib.parse.urlencode(arguments)}")
        return said["data"] if status == 200 else None

    def value(self, query):
        found = self.ask("query", query=query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def firing(self):
        """The alerts that fire, as `Name` and as `Name (severity)`."""
        found = self.ask("alerts") or {"alerts": []}
        firing = [alert["labels"] for alert in found["alerts"] if alert["state"] == "firing"]
        return {labels["alertname"] for labels in firing} | {f"{labels['alertname']} ({labels['severity']})" for labels in firing}

    def samples(self, query, length):
        now = time.time()
        found = self.ask("query_range", query=query, start=now - length, end=now, step=5)
        return sum(len(series["values"]) for series in found["result"]) if found else None


def dashboards(prometheus, folder, length):
    """Asks each query of each dashboard for the time of the drill; the number of those that return nothing."""
    empty, count = [], 0
    for path in sorted(folder.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                count += 1
                if not prometheus.samples(target["expr"].replace("$__rate_interval", "10s"), length):
                    empty.append(f"{path.name}: {panel['title']}: {target['expr']} returns nothing")
    print("\n".join([*empty, f"{count} queries of the dashboards, {count - len(empty)} return data"]))
    return len(empty)
