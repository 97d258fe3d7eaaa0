{{/* The minor version of Kubernetes that kube-scheduler gets. */}}
{{- define "muster.minor" -}}
{{- $cluster := regexFind "^v?[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version | trimPrefix "v" -}}
{{- default $cluster .Values.kubernetes.minor -}}
{{- end }}

{{/* The release of kube-scheduler for a minor version: the one of manifests/kubernetes. */}}
{{- define "muster.schedulerTag" -}}
{{- $tags := dict "1.35" "v1.35.4" "1.36" "v1.36.3" "1.37" "v1.37.0" -}}
{{- $minor := include "muster.minor" . -}}
{{- if .Values.kubeScheduler.image.tag -}}
{{- .Values.kubeScheduler.image.tag -}}
{{- else if hasKey $tags $minor -}}
{{- get $tags $minor -}}
{{- else -}}
{{- fail (printf "kubernetes.minor: %q is none of 1.35, 1.36, 1.37; set kubeScheduler.image.tag for another" $minor) -}}
{{- end -}}
{{- end }}

{{/* An image with its registry: dict "image" "tag" "root". */}}
{{- define "muster.image" -}}
{{- $registry := default .image.registry .root.Values.imageRegistry -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}{{ .image.repository }}:{{ .tag -}}
{{- end }}

{{- define "muster.ownImage" -}}
{{- include "muster.image" (dict "root" . "image" .Values.image "tag" (default .Chart.AppVersion .Values.image.tag)) -}}
{{- end }}

{{/* A shipped file, for the namespace of this release. */}}
{{- define "muster.file" -}}
{{- .root.Files.Get (printf "files/%s" .name) | replace "muster-system" .root.Release.Namespace -}}
{{- end }}

{{/* The configuration of `muster serve`. */}}
{{- define "muster.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if ne .Release.Namespace "muster-system" -}}
{{- $lease := default dict $config.lease -}}
{{- $_ := set $config "lease" (merge $lease (dict "namespace" .Release.Namespace)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* The configuration of kube-scheduler: one timeout for both ends of the bind call. */}}
{{- define "muster.schedulerConfig" -}}
{{- $timeout := dig "bind" "httpTimeout" "60s" .Values.config -}}
{{- $listen := dig "extender" "listen" "127.0.0.1:8888" .Values.config -}}
{{- include "muster.file" (dict "root" . "name" "own-scheduler.yaml")
    | replace "httpTimeout: 60s" (printf "httpTimeout: %s" $timeout)
    | replace "http://127.0.0.1:8888/" (printf "http://%s/" $listen) -}}
{{- end }}
