{{/* The prefix of all names: the release's name, which usually says gputopo already. */}}
{{- define "gputopo.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a workload selects its pods by. Takes the root and a component: (list . "agent"). */}}
{{- define "gputopo.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The recommended labels. Takes the root and a component. */}}
{{- define "gputopo.labels" -}}
{{- $root := index . 0 -}}
{{ include "gputopo.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* An image by digest or tag. Takes an image's values and the tag it has otherwise. */}}
{{- define "gputopo.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository (default (index . 1) $image.tag) }}
{{- end -}}
{{- end -}}

{{/* The cluster's version as kube-scheduler's images are tagged: without what a provider appends. */}}
{{- define "gputopo.clusterVersion" -}}
{{- with semver .Capabilities.KubeVersion.Version -}}
{{ printf "v%d.%d.%d" .Major .Minor .Patch }}
{{- end -}}
{{- end -}}

{{- define "gputopo.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gputopo.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* How kube-scheduler calls the extender; also printed in the notes, for schedulers of your own. */}}
{{- define "gputopo.extenders" -}}
extenders:
  - urlPrefix: http://127.0.0.1:{{ .Values.extender.port }}/v1/extender
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    weight: {{ .Values.scheduler.weight }}
    httpTimeout: {{ .Values.scheduler.httpTimeoutSeconds }}s
    nodeCacheCapable: true
    # An ignorable extender's bind falls through to the default binder: the pod would run without GPUs of its own.
    ignorable: false
    managedResources:
      - name: {{ .Values.gpuResource }}
        ignoredByScheduler: false
{{- end -}}
