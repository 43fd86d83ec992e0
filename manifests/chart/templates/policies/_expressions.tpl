{{/* Who the policies speak of, as CEL. */}}
{{- define "gputopo.isAgent" -}}
request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "gputopo.account" (list . "agent") }}'
{{- end -}}

{{- define "gputopo.isExtender" -}}
{{- $own := printf "system:serviceaccount:%s:%s" .Release.Namespace (include "gputopo.extenderAccount" .) -}}
request.userInfo.username in {{ include "gputopo.names" (prepend .Values.policies.extenderUsers $own) }}
{{- end -}}

{{- define "gputopo.isNotExempt" -}}
!(has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in {{ include "gputopo.names" .Values.policies.exemptGroups }}))
{{- end -}}

{{/* A list of strings. */}}
{{- define "gputopo.names" -}}
[{{ range $index, $name := . }}{{ if $index }}, {{ end }}{{ squote $name }}{{ end }}]
{{- end -}}

{{/* The annotations before and after, for `gputopo.unchanged` and `gputopo.onlyAnnotations`. */}}
{{- define "gputopo.annotationVariables" -}}
- name: before
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
- name: after
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
{{- end -}}

{{/* That no annotation with this prefix is added, altered or removed. */}}
{{- define "gputopo.unchanged" -}}
variables.after.all(key, !key.startsWith('{{ . }}') || (key in variables.before && variables.before[key] == variables.after[key]))
&& variables.before.all(key, !key.startsWith('{{ . }}') || key in variables.after)
{{- end -}}

{{/* That no annotation without this prefix is added, altered or removed. */}}
{{- define "gputopo.othersUnchanged" -}}
variables.after.all(key, key.startsWith('{{ . }}') || (key in variables.before && variables.before[key] == variables.after[key]))
&& variables.before.all(key, key.startsWith('{{ . }}') || key in variables.after)
{{- end -}}

{{/* That an update changes of the metadata annotations with this prefix and nothing else. */}}
{{- define "gputopo.onlyMetadataAnnotations" -}}
{{ include "gputopo.othersUnchanged" . }}
&& object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})
&& object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])
&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])
{{- end -}}

{{/* That an update of a node changes annotations with this prefix and nothing else. */}}
{{- define "gputopo.onlyAnnotations" -}}
{{ include "gputopo.onlyMetadataAnnotations" . }}
&& object.spec == oldObject.spec
{{- end -}}

{{/* The status before and after, for `gputopo.onlyCondition`: without a type, so that fields of later versions count, too. */}}
{{- define "gputopo.statusVariables" -}}
- name: statusBefore
  expression: "dyn(oldObject == null ? {} : oldObject.?status.orValue({}))"
- name: statusAfter
  expression: "dyn(object.?status.orValue({}))"
{{- end -}}

{{/* That an update of a status changes one condition and nothing else; a book is no message. */}}
{{- define "gputopo.onlyCondition" -}}
request.subResource != 'status' || (
  variables.statusAfter.all(field, field == 'conditions'
    || (field in variables.statusBefore && variables.statusBefore[field] == variables.statusAfter[field]))
  && variables.statusBefore.all(field, field == 'conditions' || field in variables.statusAfter)
  && variables.statusAfter.?conditions.orValue([]).filter(each, each.type != '{{ . }}')
    == variables.statusBefore.?conditions.orValue([]).filter(each, each.type != '{{ . }}')
  && variables.statusAfter.?conditions.orValue([]).filter(each, each.type == '{{ . }}').size() <= 1
  && variables.statusAfter.?conditions.orValue([]).all(each, each.type != '{{ . }}'
    || size(each.?message.orValue('')) + size(each.?reason.orValue('')) <= 2048)
)
{{- end -}}

{{/* A policy without its binding does nothing. Takes the root and the policy's name. */}}
{{- define "gputopo.policyBinding" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels: {{- include "gputopo.labels" (list $root "policies") | nindent 4 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: [Deny]
{{- end -}}

{{/* That `name` is one of these resources; a `*` at the end of one stands for anything. */}}
{{- define "gputopo.isOurs" -}}
{{- range $index, $resource := . }}{{ if $index }} || {{ end }}
{{- if hasSuffix "*" $resource }}name.startsWith('{{ trimSuffix "*" $resource }}'){{ else }}name == '{{ $resource }}'{{ end }}
{{- end }}
{{- end -}}

{{/* That some container of a pod requests one of these resources. Takes the pod as CEL, and the resources. */}}
{{- define "gputopo.requestsGpus" -}}
{{- $pod := index . 0 -}}
({{ $pod }}.spec.containers + {{ $pod }}.spec.?initContainers.orValue([])).exists(container,
container.?resources.?limits.orValue({}).exists(name,
({{ include "gputopo.isOurs" (index . 1) }}) && string(container.resources.limits[name]) != '0'))
{{- end -}}

{{/* The namespaces of a policy, as a selector. Takes the root, and values with `namespaceSelector` and `exemptNamespaces`. */}}
{{- define "gputopo.policyNamespaces" -}}
{{- $exempt := append (index . 1).exemptNamespaces (index . 0).Release.Namespace | uniq }}
{{- $selector := (index . 1).namespaceSelector }}
{{- $namespaces := dict "matchExpressions" (concat (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $exempt)) ($selector.matchExpressions | default list)) }}
{{- with $selector.matchLabels }}{{ $_ := set $namespaces "matchLabels" . }}{{ end }}
{{- toYaml $namespaces }}
{{- end -}}

{{/* The newest version of MutatingAdmissionPolicy that the API server serves, or nothing. */}}
{{- define "gputopo.mutatingApi" -}}
{{- if ge (int (semver .Capabilities.KubeVersion.Version).Minor) 36 }}v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" }}v1beta1
{{- end }}
{{- end -}}

{{/* That version where it sets the name of the scheduler, `warn` where a warning has to do, or nothing. */}}
{{- define "gputopo.schedulerNameApi" -}}
{{- $mode := .Values.policies.schedulerName.mode }}
{{- $served := include "gputopo.mutatingApi" . }}
{{- if eq $mode "set" }}
{{- $served | required "\npolicies.schedulerName.mode is `set`, and this API server serves no MutatingAdmissionPolicy: that is in Kubernetes 1.36, and in 1.34 and\n1.35 where --feature-gates=MutatingAdmissionPolicy=true and --runtime-config=admissionregistration.k8s.io/v1beta1=true are\nset. With `auto` a warning has to do where it is not." }}
{{- else if eq $mode "auto" }}
{{- $served | default "warn" }}
{{- else if eq $mode "warn" }}warn
{{- end }}
{{- end -}}
