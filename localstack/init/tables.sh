#!/bin/sh
# Creates the tables from the production template, given as the argument; leaves them alone where they are there.
# Takes the standard AWS variables, and TABLE_PREFIX.
set -eu

# Restoring to a point in time is nothing an emulator needs to do, and what is on it may go.
set -- --template-file "$1" --parameter-overrides PointInTimeRecovery=false DeletionProtection=false
if [ -n "${TABLE_PREFIX:-}" ]; then
  set -- "$@" "TablePrefix=$TABLE_PREFIX"
fi
# CloudFormation's names are narrower than DynamoDB's: what is neither letter nor digit becomes a hyphen.
stack=tally-data$(printf %s "${TABLE_PREFIX:+-$TABLE_PREFIX}" | tr -c '[:alnum:]' -)
aws cloudformation deploy --stack-name "$stack" --no-fail-on-empty-changeset "$@"
