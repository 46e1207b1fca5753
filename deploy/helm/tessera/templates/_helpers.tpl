{{/* [registry/]name:tag of an image */}}
{{- define "tessera.image" -}}
{{- with .registry }}{{ . }}/{{ end }}{{ .name }}:{{ .tag }}
{{- end }}

{{- define "tessera.ca" -}}
{{ required "tls.ca: see README.md" .Values.tls.ca }}
{{- end }}

{{/* Namespaces whose pods never wait for the webhooks: where we run ourselves, and the cluster's own. */}}
{{- define "tessera.excluded" -}}
{{ concat (list "kube-system" .Release.Namespace) .Values.webhooks.excludedNamespaces | uniq | toJson }}
{{- end }}
