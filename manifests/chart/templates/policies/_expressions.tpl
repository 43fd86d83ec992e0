{{/* Who the policies speak of, as CEL. */}}
{{- define "gputopo.isAgent" -}}
request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "gputopo.fullname" . }}-agent'
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

{{/* That an update of a node changes annotations with this prefix and nothing else. */}}
{{- define "gputopo.onlyAnnotations" -}}
variables.after.all(key, key.startsWith('{{ . }}') || (key in variables.before && variables.before[key] == variables.after[key]))
&& variables.before.all(key, key.startsWith('{{ . }}') || key in variables.after)
&& object.spec == oldObject.spec
&& object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})
&& object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])
&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])
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
