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

{{/* What a workload selects its pods by. Takes the root and a component: (list . "agent"). The name is always ours: by it the
extender and kubectl gputopo know our pods and policies. */}}
{{- define "gputopo.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The recommended labels. Takes the root, a component and, for some objects, the user's labels for them. */}}
{{- define "gputopo.labels" -}}
{{- $root := index . 0 -}}
{{ include "gputopo.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- with mustMerge (dict) (gt (len .) 2 | ternary (last .) dict) $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of a component's pods. Takes the root, a component and the user's labels for them. A selector never has the user's. */}}
{{- define "gputopo.podLabels" -}}
{{ include "gputopo.selector" . }}
{{- with mustMerge (dict) (index . 2) (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The name of a component's account. Takes the root and the component. */}}
{{- define "gputopo.account" -}}
{{- $root := index . 0 -}}
{{- default (printf "%s-%s" (include "gputopo.fullname" $root) (index . 1)) (index $root.Values (index . 1)).serviceAccount.name -}}
{{- end -}}

{{/* A component's account, or nothing where the user brings it. Takes the root and the component. */}}
{{- define "gputopo.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- with (index $root.Values (index . 1)).serviceAccount -}}
{{- if .create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "gputopo.account" $ }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "gputopo.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How many pods of a component may be away at once. Takes the root and the component, which are the scheduler's values in both cases. */}}
{{- define "gputopo.podDisruptionBudget" -}}
{{- $root := index . 0 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "gputopo.fullname" $root }}-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "gputopo.labels" . | nindent 4 }}
spec:
  {{- with $root.Values.scheduler.podDisruptionBudget }}
  {{- if ne (toString .minAvailable) "" }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "gputopo.selector" . | nindent 6 }}
{{- end -}}

{{/* How a component's pods spread over nodes. Takes the root and the component. */}}
{{- define "gputopo.topologySpreadConstraints" -}}
{{- $constraints := list -}}
{{- range (index . 0).Values.scheduler.topologySpreadConstraints -}}
{{- $constraint := deepCopy . -}}
{{- if not (hasKey . "labelSelector") -}}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" (include "gputopo.selector" $ | fromYaml)) -}}
{{- end -}}
{{- $constraints = append $constraints $constraint -}}
{{- end -}}
{{- toYaml $constraints -}}
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

{{/* The newest kube-scheduler that tests run with. */}}
{{- define "gputopo.newestTested" -}}v1.37.2{{- end -}}

{{/* The tag of kube-scheduler's image: the cluster's version, without what a provider appends. Never a newer minor version than the
tested ones, unless the user allows it. Without a cluster Helm says a version of its own, whose patch may be older than the tested one. */}}
{{- define "gputopo.schedulerVersion" -}}
{{- $cluster := semver .Capabilities.KubeVersion.Version -}}
{{- $tested := semver (include "gputopo.newestTested" .) -}}
{{- $own := printf "v%d.%d.%d" $cluster.Major $cluster.Minor $cluster.Patch -}}
{{- if and (gt $cluster.Minor $tested.Minor) .Values.scheduler.allowUntestedVersion -}}
{{ $own }}
{{- else if or (gt $cluster.Minor $tested.Minor) (and (eq $cluster.Minor $tested.Minor) (lt $cluster.Patch $tested.Patch)) -}}
{{ include "gputopo.newestTested" . }}
{{- else -}}
{{ $own }}
{{- end -}}
{{- end -}}

{{- define "gputopo.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gputopo.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The security context of the agent's container. */}}
{{- define "gputopo.agentSecurityContext" -}}
{{- if .Values.agent.driverDir -}}
# No runtime gives it the driver's device nodes, and no less may open them.
privileged: true
readOnlyRootFilesystem: true
{{- else if include "gputopo.agentIsSysAdmin" . -}}
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [SYS_ADMIN]}
{{- else -}}
{{- include "gputopo.containerSecurityContext" . }}
{{- end }}
# The kubelet's sockets are root's alone. Without capabilities root is not more than their owner.
runAsNonRoot: false
runAsUser: 0
runAsGroup: 0
{{- with default (.Values.openshift.enabled | ternary (dict "type" "spc_t") dict) .Values.agent.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of ours, as YAML, with the user's over them. Takes both. */}}
{{- define "gputopo.with" -}}
{{- if index . 1 -}}
{{- toYaml (mustMergeOverwrite (index . 0 | fromYaml) (deepCopy (index . 1))) -}}
{{- else -}}
{{- index . 0 -}}
{{- end -}}
{{- end -}}

{{/* Not empty where the agent is to set the driver's memory limits by cgroup. */}}
{{- define "gputopo.limitsByCgroup" -}}
{{- with .Values.agent -}}
{{- if and (eq .mode "enforce") (ne (toString .sharing.gpus) "none") .sharing.cgroups }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{/* Not empty where the agent has the capability SYS_ADMIN. */}}
{{- define "gputopo.agentIsSysAdmin" -}}
{{- if or .Values.mig.enabled (include "gputopo.limitsByCgroup" .) }}yes{{ end -}}
{{- end -}}

{{/* A pod's node selector: our image is for Linux. Takes the user's. */}}
{{- define "gputopo.nodeSelector" -}}
{{- toYaml (mustMerge (dict "kubernetes.io/os" "linux") .) -}}
{{- end -}}

{{/* Not empty where extenders have pods of their own. */}}
{{- define "gputopo.extenderHasOwnPods" -}}
{{- if or .Values.extender.service.enabled (not .Values.scheduler.enabled) }}yes{{ end -}}
{{- end -}}

{{/* Not empty where no kube-scheduler asks the extender, which then only plans the queue. */}}
{{- define "gputopo.onlyPlans" -}}
{{- if not (or .Values.extender.service.enabled .Values.scheduler.enabled) }}yes{{ end -}}
{{- end -}}

{{/* Not empty where extenders serve the view. */}}
{{- define "gputopo.hasView" -}}
{{- if dig "view" "enabled" false .Values.extender.config }}yes{{ end -}}
{{- end -}}

{{/* The component whose pods run the extender. */}}
{{- define "gputopo.extenderComponent" -}}
{{ include "gputopo.extenderHasOwnPods" . | empty | ternary "scheduler" "extender" }}
{{- end -}}

{{/* The rule of a NetworkPolicy that admits the readers of the view. */}}
{{- define "gputopo.viewers" -}}
{{- if include "gputopo.hasView" . }}
{{- with .Values.networkPolicy.viewers }}
- ports: [{port: view}]
  from: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The scheduler that places pods with GPUs. */}}
{{- define "gputopo.schedulerName" -}}
{{ include "gputopo.onlyPlans" . | empty | ternary .Values.schedulerName "default-scheduler" }}
{{- end -}}

{{/* The account that the extender has: its own, or the one of the pod that it shares with kube-scheduler. */}}
{{- define "gputopo.extenderAccount" -}}
{{ include "gputopo.account" (list . (include "gputopo.extenderHasOwnPods" . | empty | ternary "scheduler" "extender")) }}
{{- end -}}

{{/* The extender's container, but for what makes it a sidecar. */}}
{{- define "gputopo.extenderContainer" -}}
name: extender
image: {{ include "gputopo.image" (list .Values.image .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [gputopo-extender]
args:
  - --config=/etc/gputopo/extender.yaml
  - --set=health.host=$(POD_IP)
  {{- if .Values.extender.service.enabled }}
  - --set=listen.host=$(POD_IP)
  {{- end }}
  {{- if include "gputopo.hasView" . }}
  - --set=view.host=$(POD_IP)
  {{- end }}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- range $name, $value := .Values.extender.env }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
  {{- with .Values.extender.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: extender-health, containerPort: {{ .Values.extender.healthPort }}}
  # By this name `kubectl gputopo --extender auto` forwards it, also where it listens on loopback.
  - {name: extender, containerPort: {{ .Values.extender.port }}}
  {{- if include "gputopo.hasView" . }}
  - {name: view, containerPort: {{ dig "view" "port" 8890 .Values.extender.config }}}
  {{- end }}
startupProbe:
  httpGet: {path: /readyz, port: extender-health}
  periodSeconds: 1
  failureThreshold: 300
readinessProbe:
  httpGet: {path: /readyz, port: extender-health}
livenessProbe:
  httpGet: {path: /livez, port: extender-health}
securityContext:
  {{- include "gputopo.with" (list (include "gputopo.containerSecurityContext" .) .Values.extender.containerSecurityContext) | nindent 2 }}
resources: {{- toYaml .Values.extender.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/gputopo, readOnly: true}
  {{- if .Values.extender.service.enabled }}
  - {name: tls, mountPath: /etc/gputopo-tls, readOnly: true}
  {{- end }}
  {{- if .Values.extender.measuredConfigMap }}
  - {name: measured, mountPath: /etc/gputopo-measured, readOnly: true}
  {{- end }}
  {{- with .Values.extender.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* How kube-scheduler calls the extender; also printed in the notes, for schedulers of your own. */}}
{{- define "gputopo.extenders" -}}
extenders:
  {{- if .Values.extender.service.enabled }}
  - urlPrefix: https://{{ include "gputopo.fullname" . }}-extender.{{ .Release.Namespace }}.svc:{{ .Values.extender.port }}/v1/extender
    enableHTTPS: true
    # Without a CA here kube-scheduler would verify nothing, and not say so.
    tlsConfig:
      insecure: false
      caFile: /etc/gputopo-tls/ca.crt
      certFile: /etc/gputopo-tls/tls.crt
      keyFile: /etc/gputopo-tls/tls.key
  {{- else }}
  - urlPrefix: http://127.0.0.1:{{ .Values.extender.port }}/v1/extender
  {{- end }}
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    preemptVerb: preempt
    weight: {{ .Values.scheduler.weight }}
    httpTimeout: {{ .Values.scheduler.httpTimeoutSeconds }}s
    nodeCacheCapable: true
    # An ignorable extender's bind falls through to the default binder: the pod would run without GPUs of its own.
    ignorable: false
    managedResources:
      - name: {{ .Values.gpuResource }}
        ignoredByScheduler: false
      - name: gputopo.dev/gpu-memory-gib
        ignoredByScheduler: false
      {{- range .Values.mig.profiles }}
      - name: nvidia.com/mig-{{ replace "+" "." . }}
        ignoredByScheduler: false
      {{- end }}
{{- end -}}

{{/* Who may reach a component's pods, but for what only its own file knows. Takes the root, a component and the ports that
are scraped. The kubelet needs no rule: a pod's own node always gets through. */}}
{{- define "gputopo.networkPolicy" -}}
{{- $root := index . 0 -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "gputopo.fullname" $root }}-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "gputopo.labels" (list $root (index . 1)) | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "gputopo.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- /* Without this condition an empty list would let in everybody. */}}
    {{- with $root.Values.networkPolicy.scrapers }}
    - ports:
        {{- range index $ 2 }}
        - port: {{ . }}
        {{- end }}
      from: {{- toYaml . | nindent 8 }}
    {{- end }}
{{- end -}}

{{/* A pod of a hook, but for its containers. Takes the root and the name of its account. */}}
{{- define "gputopo.hookPodSpec" -}}
{{- $root := index . 0 -}}
restartPolicy: Never
serviceAccountName: {{ index . 1 }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- if $root.Values.openshift.enabled }}
  # OpenShift chooses the user itself.
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
  {{- else }}
  {{- include "gputopo.podSecurityContext" $root | nindent 2 }}
  {{- end }}
nodeSelector: {{- include "gputopo.nodeSelector" $root.Values.scheduler.nodeSelector | nindent 2 }}
{{- with $root.Values.scheduler.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The container of a hook, but for its name and command. */}}
{{- define "gputopo.hookContainer" -}}
image: {{ include "gputopo.image" (list .Values.image .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "gputopo.containerSecurityContext" . | nindent 2 }}
resources:
  requests: {cpu: 100m, memory: 128Mi}
  limits: {memory: 256Mi}
{{- end -}}
