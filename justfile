# Every task of a developer: `just` lists them, `just TASK --help` explains one. Each is a command that runs without just, too.

set positional-arguments

_default:
    @{{ just_executable() }} --list --unsorted

# the gate, which every change has to pass; needs no engine
gate *args:
    .ci/run "$@"

# as much of the rest as fits into so many minutes: seeds, real engines, kills, browsers
night *args:
    .ci/night "$@"

# format and lints, as the gate has them
lint *args:
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets -- -D warnings "$@"

# bans, licenses and sources of dependencies
deny *args:
    cargo deny check bans licenses sources "$@"

# attacks, simulated schedules and the scale model: just e2e --help
e2e *args:
    cargo run --release -p tally-e2e -- "$@"

# the tests of every crate
test *args:
    cargo test --workspace "$@"

# the tests of the crates at the sizes that a release is held to
full-size *args:
    .ci/night 60 --only 'full size' "$@"

# lengths of files, tests that are not run, links, stale pages
shape *args:
    .ci/shape "$@"

# the whole pipeline in one process, with a page
stack *args:
    cargo run --release -- "$@"

# Apache Kafka, Redis and ministack on this machine, without containers
engines *args:
    localstack/engines "$@"

# the contracts on real engines
engines-test *args:
    localstack/engines test "$@"

# the pipeline as processes on real engines while things break: just acceptance NAME
acceptance *args:
    localstack/acceptance/run "$@"

# the local stack in containers, as it is shipped
containers *args:
    localstack/containers "$@"

# images for containers where none can be pulled
stand-ins *args:
    localstack/stand-ins "$@"

# what the documents say, tried: just docs [NAME ..]
docs *args:
    docs/check "$@"

# writes docs/reference.md and docs/laws.md from the sources
reference *args:
    docs/reference.py "$@"

# every answer of the API compared with a file of likes
verify *args:
    docs/examples/verify "$@"

# ten minutes with a real AWS account
smoke-aws *args:
    docs/smoke-aws.sh "$@"

# templates, local stack, image, scripts and workflows by their linters and our rules
infra *args:
    infra/check "$@"

# the services and the operators' commands under the policies of infra/roles.yaml
permissions *args:
    infra/permissions "$@"

# the stacks of an environment, created or changed: just deploy ENV --plan
deploy *args:
    infra/deploy "$@"

# a deployment as on AWS, on one machine
rehearse *args:
    localstack/containers --aws "$@"

# the services' images, built and tried
images *args:
    infra/images "$@"

# the archive of a release for one target
archive *args:
    .ci/archive "$@"

# alerts, their tests and mutants, runbooks and dashboards
ops *args:
    ops/check "$@"

# each alert made to fire
drill *args:
    ops/drill "$@"

# docs/figures.md, measured again: just figures [PART ..]
figures *args:
    e2e/figures "$@"

# throughput, cores and the API measured: just bench conditions, cores or api
bench *args:
    e2e/bench "$@"

# what the same likes cost a month by other means; needs TALLY_TEST_BIN
costs *args:
    e2e/costs "$@"

# how fast the embedded DynamoDB is
bench-emulator:
    cargo bench -p tally-emulator --bench throughput

# how fast lists are made
bench-trends *args:
    cargo bench -p tally-trends --bench lists -- "$@"
