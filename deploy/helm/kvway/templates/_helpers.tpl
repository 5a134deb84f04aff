{{- define "kvway.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "kvway.selector" -}}
app.kubernetes.io/name: kvway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvway.cacheSelector" -}}
app.kubernetes.io/name: kvtierd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvway.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kvway.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "kvway.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- /* How the admin address is asked. The kubelet shows no certificate. */ -}}
{{- define "kvway.adminScheme" -}}
{{- $tls := (.Values.config.admin | default dict).tls | default dict -}}
{{- if and $tls.client_ca (ne (default "required" $tls.client_certificate) "asked") -}}
{{- fail "config.admin.tls.client_ca: expected `client_certificate: asked` beside it, since the kubelet's probes show no certificate" -}}
{{- end -}}
{{- ternary "HTTPS" "HTTP" (not (empty $tls.certificate)) -}}
{{- end }}

{{- /* kvway.yaml: what the values say, and .Values.config over it. */ -}}
{{- define "kvway.config" -}}
{{- $config := dict "listen" "0.0.0.0:8080" "admin" (dict "listen" "0.0.0.0:9090" "open" (list "/metrics")) "config" (dict "watch" true) "routing" (dict "strategy" .Values.strategy) -}}
{{- $workers := list -}}
{{- range .Values.workers.static -}}
{{- $workers = append $workers (ternary (dict "url" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- if $workers }}{{ $_ := set $config "workers" $workers }}{{ end -}}
{{- $discovery := dict -}}
{{- with .Values.workers.dns }}{{ $_ := set $discovery "dns" . }}{{ end -}}
{{- with .Values.workers.kubernetes }}{{ $_ := set $discovery "kubernetes" (dict "pools" .) }}{{ end -}}
{{- if $discovery }}{{ $_ := set $config "discovery" $discovery }}{{ end -}}
{{- toYaml (mustMergeOverwrite $config (include "kvway.given" .Values.config | fromYaml)) -}}
{{- end }}

{{- /* A mapping without what is null, in its mappings too: what is null is as if it were not there. */ -}}
{{- define "kvway.given" -}}
{{- $given := dict -}}
{{- range $name, $value := . -}}
{{- if kindIs "map" $value }}{{ $_ := set $given $name (include "kvway.given" $value | fromYaml) }}
{{- else if not (kindIs "invalid" $value) }}{{ $_ := set $given $name $value }}{{ end -}}
{{- end -}}
{{- toYaml $given -}}
{{- end }}

{{- define "kvway.cacheConfig" -}}
{{- $config := dict "listen" "0.0.0.0:9200" "segment" (dict "name" "shared_memory" "size" .Values.cache.segment) -}}
{{- if .Values.cache.nvme.capacity }}{{ $_ := set $config "cache" (dict "nvme" (dict "path" "/var/lib/kvtierd" "capacity" .Values.cache.nvme.capacity)) }}{{ end -}}
{{- toYaml (mustMergeOverwrite $config (deepCopy .Values.cache.config)) -}}
{{- end }}

{{/* A server needs minutes until it serves: while some come, no more than half as many are added. One that leaves takes a
warm cache with it. */}}
{{- define "kvway.workersBehavior" }}
scaleUp:
  stabilizationWindowSeconds: 30
  policies: [{type: Percent, value: 50, periodSeconds: 180}, {type: Pods, value: 1, periodSeconds: 180}]
scaleDown:
  stabilizationWindowSeconds: 300
  policies: [{type: Pods, value: 1, periodSeconds: 120}]
{{- end }}
