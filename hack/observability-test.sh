#!/usr/bin/env bash
# Holds the shipped alerts against promtool: the rules are sound, each fires in one case and is silent in another, and every query of the
# dashboards is one that Prometheus can read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
promtool="${PROMTOOL:-$(hack/prometheus/build.sh)}"
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT

# The groups of the PrometheusRule are what Prometheus reads.
sed -n '/^spec:$/,$p' manifests/observability/rules.yaml | sed '1d;s/^  //' >"$folder/rules.yaml"
cp manifests/observability/rules-test.yaml "$folder/"
"$promtool" check rules "$folder/rules.yaml"
(cd "$folder" && "$promtool" test rules rules-test.yaml)

queries="$folder/queries.yaml"
echo "groups: [{name: dashboards, rules: [" >"$queries"
count=0
while IFS= read -r query; do
  count=$((count + 1))
  echo "{record: 'query:$count', expr: $query}," >>"$queries"
done < <(sed -n 's/^ *"expr": \(".*"\),$/\1/p' manifests/observability/dashboard-*.yaml)
echo "]}]" >>"$queries"
[ "$count" -gt 20 ] || { echo "the queries of the dashboards were not found" >&2; exit 1; }
"$promtool" check rules "$queries"
