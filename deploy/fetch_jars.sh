#!/bin/sh
# Fetches the jars that Spark needs for Iceberg, once, so that no job resolves packages when it starts.
#
#     deploy/fetch_jars.sh DIRECTORY [COORDINATE ...]     # default: those of deploy/jars.txt
#
# Needs spark-submit on PATH (it is in the Python environment) and a Maven repository in reach.
set -eu
directory=$1
shift
[ $# -gt 0 ] || set -- $(cat "$(dirname "$0")/jars.txt")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$work/nothing.py"
packages=$(IFS=,; echo "$*")
spark-submit --master 'local[1]' --conf spark.jars.ivy="$work/ivy" --conf spark.ui.enabled=false \
    --packages "$packages" "$work/nothing.py" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mkdir -p "$directory"
cp "$work"/ivy/jars/*.jar "$directory/"
