# shellcheck shell=bash
# Checks of docs/check: the services as processes of docs/try.md, and the manifests of docs/kubernetes.md.

# The steps of docs/try.md that start each service as a process of its own, as they stand there: its blocks behind the heading, with
# free ports in place of the usual ones. The numbers of the blocks' last requests are compared.
check_processes() {
  local port free program
  need kcat
  need java default-jre-headless
  need redis-server
  mkdir "$SCRATCH/bin"
  awk '/^## Each service as a process/ { on = 1; next } /^## / { on = 0 } on && /^```sh$/ { code = 1; next } /^```$/ { code = 0 } on && code' \
    docs/try.md >"$SCRATCH/steps.sh"
  grep -q tally-trends "$SCRATCH/steps.sh" || fail "docs/try.md has no such steps"
  # The ports of the page, each with a free one. Admin listeners have their default ports there.
  for port in 8000 8080 9090 9091 9094 9095 9097; do
    read -r free < <(free_ports 1)
    sed -i "s/\b$port\b/$free/g" "$SCRATCH/steps.sh"
    for program in count-api:9090 consumer:9091 change-streamer:9094 batch-recount:9095 trends:9097; do
      [[ ${program#*:} == "$port" ]] || continue
      printf '#!/bin/sh\nexport TALLY_ADMIN_LISTEN=127.0.0.1:%s\nexec "%s/tally-%s" "$@"\n' \
        "$free" "$TALLY_TEST_BIN" "${program%:*}" >"$SCRATCH/bin/tally-${program%:*}"
    done
  done
  chmod +x "$SCRATCH"/bin/*
  sed -i "s#\$PWD/target/release#$SCRATCH/bin:$TALLY_TEST_BIN#; s#localstack/engines \([a-z]*\)#& --folder $SCRATCH/engines#
    s#engines up --folder [^ ]*#& --any-ports#; 1i trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT" "$SCRATCH/steps.sh"
  ENGINES+=("$SCRATCH/engines")
  start steps env -u TALLY_TEST_BIN timeout 600 bash -euo pipefail "$SCRATCH/steps.sh"
  wait "${PIDS[steps]}" || fail "a step failed, or took ten minutes: $(tail -n 5 "$SCRATCH/steps.log")"
  unset 'PIDS[steps]'
  grep -q '"likes":2,.*"exact":true' "$SCRATCH/steps.out" || fail "the count is not 2 and exact: $(cat "$SCRATCH/steps.out")"
  grep -q '^nothing wrong was found' "$SCRATCH/steps.out" || fail "tally status found something: $(cat "$SCRATCH/steps.out")"
  echo "each step as it stands in docs/try.md: $(grep -o '"likes":2,.*' "$SCRATCH/steps.out" | head -n 1)"
}

# The manifests against the schemas of Kubernetes, and the variables of each container by its own program.
check_kubernetes() {
  local venv=$SCRATCH/venv version
  python3 -m venv "$venv" || skip "python3 has no working venv: apt-get install python3-venv"
  "$venv/bin/pip" --quiet --retries 1 --timeout 20 install kubernetes-validate==1.37.0 || skip "the Python package kubernetes-validate cannot be fetched"
  for version in 1.30 1.37; do
    "$venv/bin/kubernetes-validate" --strict --quiet -k "$version" docs/examples/kubernetes/*.yaml
  done
  "$venv/bin/python" - "$TALLY_TEST_BIN" <<'PY'
import pathlib, re, subprocess, sys
import yaml

manifests = [each for path in sorted(pathlib.Path("docs/examples/kubernetes").glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]
of_kind = lambda *kinds: [each for each in manifests if each["kind"] in kinds]
settings, secret = of_kind("ConfigMap")[0]["data"], of_kind("Secret")[0]["stringData"]
containers = 0
for each in of_kind("Deployment", "CronJob"):
    name = each["metadata"]["name"]
    template = each["spec"]["jobTemplate"]["spec"]["template"] if each["kind"] == "CronJob" else each["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    service = re.fullmatch("REGISTRY/tally:VERSION-(.+)", container["image"])[1]
    # As the images have it, and nothing else of this process.
    env = {"TALLY_ADMIN_LISTEN": "0.0.0.0:9090", **({"TALLY_LISTEN": "0.0.0.0:8080"} if service == "count-api" else {}), **settings}
    for one in container.get("env", []):
        env[one["name"]] = one["value"] if "value" in one else secret[one["valueFrom"]["secretKeyRef"]["key"]]
    said = subprocess.run([f"{sys.argv[1]}/tally-{service}", "--check", *container.get("args", [])], env=env, capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{name}: {said.returncode}: {said.stdout}{said.stderr}")
    grace = int(settings["TALLY_SHUTDOWN_GRACE"].removesuffix("s"))
    first = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if pod["terminationGracePeriodSeconds"] <= grace + first:
        sys.exit(f"{name}: it is killed before its grace of {grace} s is over")
    if each["kind"] == "Deployment" and each["spec"]["selector"]["matchLabels"] != template["metadata"]["labels"]:
        sys.exit(f"{name}: the selector does not find its pods")
    containers += 1
labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment")]
for each in of_kind("Service", "PodDisruptionBudget"):
    if each["spec"]["selector"].get("matchLabels", each["spec"]["selector"]) not in labels:
        sys.exit(f"{each['kind']} {each['metadata']['name']} selects no pods")
print(f"{len(manifests)} manifests as Kubernetes 1.30 and 1.37 take them, {containers} containers whose variables their programs take")
PY
}
