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

{{/* matchConditions: pods that ask for GPUs, so that no other pod ever waits for the webhooks. */}}
{{- define "tessera.gpus" -}}
- name: asks-for-gpus
  expression: >-
    object.metadata.?annotations.orValue({}).exists(k, k.startsWith('gpu-fraction')
    || k.startsWith('gpu-memory') || k.startsWith('{{ .Values.extender.prefix }}')
    || k.startsWith('tessera.dev/'))
    || (object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
    c.?resources.?limits.orValue({}).exists(r, r.startsWith('nvidia.com/') || r.startsWith('tessera.dev/'))
    || c.?resources.?requests.orValue({}).exists(r, r.startsWith('nvidia.com/') || r.startsWith('tessera.dev/')))
{{- end }}
