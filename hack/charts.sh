#!/usr/bin/env bash
# Copies into the charts what they have in common with the kustomization: Helm reads no file outside a chart.
# A test holds that the copies are current.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cp manifests/crds/*.muster.dev.yaml charts/muster-crd/files/
cp manifests/{rbac,rbac-scheduler,flow-schemas,admission-policy,reserved-keys-policy,priority-class,service}.yaml \
  manifests/monitoring/pod-monitor.yaml scheduler-config/own-scheduler.yaml charts/muster/files/
cp manifests/observability/{rules,dashboard-operations,dashboard-money}.yaml charts/muster/files/
